// A file has the saved ends, or is rejected.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/packing/pack_plan.hpp"
#include "core/packing/window_ends_file.hpp"

namespace fs = std::filesystem;

using gristmill::PackPlan;

namespace {

using Numbers = std::vector<std::int64_t>;

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string message(const std::vector<char>& bytes, std::uint64_t key) {
  return gristmill::parse_window_ends(std::as_bytes(std::span(bytes)), key)
      .status()
      .message();
}

void test_saved_ends_are_loaded(const std::string& path) {
  for (const Numbers& ends : {Numbers{}, Numbers{0, 0, 5, 9}}) {
    CHECK(gristmill::save_window_ends(path, 3, ends).ok());
    CHECK(gristmill::load_window_ends(path, 3).value() == ends);
  }
}

void test_damaged_file_is_rejected(const std::string& path) {
  CHECK(gristmill::save_window_ends(path, 3, Numbers{2, 5}).ok());
  const auto bytes = bytes_of(path);
  CHECK_EQ(message(bytes, 4), "the file is of another packing plan");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    CHECK(!message(changed, 3).empty());
    CHECK(!message({bytes.begin(), bytes.begin() + static_cast<long>(i)}, 3)
               .empty());
  }
  CHECK(gristmill::save_window_ends(path, 3, Numbers{5, 2}).ok());
  CHECK_EQ(message(bytes_of(path), 3), "the file is damaged");
  CHECK(!gristmill::load_window_ends(path + ".missing", 3).ok());
}

void test_plan_reads_and_replaces_its_file(const std::string& path) {
  const Numbers lengths{5, 9, 1, 4, 7, 3, 2, 8};
  const auto plan_of = [&](std::int64_t capacity) {
    return PackPlan::of({std::as_bytes(std::span(lengths)), 8},
                        {.capacity = capacity,
                         .window = 2,
                         .seed = 1,
                         .epochs = 2,
                         .counts_path = path})
        .take();
  };
  CHECK(plan_of(10)->window_ends().empty());
  const auto rows = plan_of(10)->first_row(2).value();
  const auto again = plan_of(10);
  CHECK_EQ(again->window_ends().size(), std::size_t{8});
  CHECK_EQ(again->window_ends().back(), rows);
  // The file is of another plan, which replaces it.
  CHECK(plan_of(20)->window_ends().empty());
  CHECK(plan_of(20)->first_row(2).ok());
  CHECK_EQ(plan_of(20)->window_ends().size(), std::size_t{8});
  CHECK_EQ(plan_of(10)->first_row(2).value(), rows);
}

}  // namespace

int main() {
  std::string folder = fs::temp_directory_path() / "window-ends-XXXXXX";
  CHECK(mkdtemp(folder.data()) != nullptr);
  test_saved_ends_are_loaded(folder + "/ends");
  test_damaged_file_is_rejected(folder + "/ends");
  test_plan_reads_and_replaces_its_file(folder + "/new/ends");
  fs::remove_all(folder);
}
