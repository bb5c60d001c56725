#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/files/array_file.hpp"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

constexpr ArrayFile::Sizes kSizes{5, 0, 200, 1};

const fs::path& folder() {
  static const fs::path path = fs::temp_directory_path() /
                               ("gristmill-arrays-" + std::to_string(getpid()));
  return path;
}

std::string path_of(const std::string& name) { return folder() / name; }

// Loads or builds arrays whose bytes are all `value`, and counts the builds.
Result<ArrayFile> open(const std::vector<std::string>& names, std::uint64_t key,
                       int value, int& builds,
                       const ArrayFile::Sizes& sizes = kSizes) {
  ArrayFile::Place place{key, {}, ""};
  for (const auto& name : names) place.index_paths.push_back(path_of(name));
  auto arrays = ArrayFile::load_or_build(place, sizes, [&](const auto& to) {
    ++builds;
    for (const auto& array : to) std::memset(array.data(), value, array.size());
    return Status();
  });
  // Wait until the file is complete.
  if (arrays.ok()) static_cast<void>(arrays.value().path());
  return arrays;
}

void check_bytes(const ArrayFile& arrays, int value) {
  for (std::size_t i = 0; i < ArrayFile::kMaxArrays; ++i) {
    CHECK_EQ(arrays.array(i).size(), kSizes.at(i));
    for (const std::byte byte : arrays.array(i)) {
      CHECK_EQ(std::to_integer<int>(byte), value);
    }
  }
}

void test_arrays_are_built_once() {
  int builds = 0;
  for (int i = 0; i < 3; ++i) {
    const auto arrays = open({"once"}, 7, 3, builds).value();
    check_bytes(arrays, 3);
    CHECK_EQ(arrays.path(), path_of("once"));
  }
  CHECK_EQ(builds, 1);
}

void test_other_key_or_sizes_are_built_again() {
  int builds = 0;
  check_bytes(open({"other"}, 7, 3, builds).value(), 3);
  check_bytes(open({"other"}, 8, 4, builds).value(), 4);
  CHECK_EQ(builds, 2);
  const auto larger = open({"other"}, 8, 5, builds, {500, 0, 0, 0}).value();
  CHECK_EQ(builds, 3);
  CHECK_EQ(larger.array(0).size(), 500U);
}

// Reads arrays before, while and after they are saved and mapped.
void test_arrays_can_be_read_while_they_are_saved() {
  constexpr std::size_t kWords = std::size_t{4} << 20;
  const ArrayFile::Place place{9, {path_of("large")}, ""};
  const auto arrays = ArrayFile::load_or_build(
                          place, {4 * kWords, 0, 0, 0},
                          [](const auto& to) {
                            auto* const words =
                                reinterpret_cast<std::uint32_t*>(to[0].data());
                            std::iota(words, words + kWords, 0U);
                            return Status();
                          })
                          .value();
  CHECK(arrays.has_file());
  std::uint64_t sum = 0;
  std::size_t count = 0;
  std::jthread reader([&](const std::stop_token& stop) {
    const auto* const words =
        reinterpret_cast<const std::uint32_t*>(arrays.array(0).data());
    for (; !stop.stop_requested() || count == 0; ++count) {
      for (std::size_t i = 0; i < kWords; ++i) sum += words[i];
    }
  });
  CHECK_EQ(arrays.path(), path_of("large"));
  reader.request_stop();
  reader.join();
  CHECK_EQ(sum, count * (kWords * (kWords - 1) / 2));
  // The arrays are those of the file.
  std::fstream file(path_of("large"),
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(64);
  file.put(5);
  file.close();
  CHECK_EQ(std::to_integer<int>(arrays.array(0)[0]), 5);
}

void test_lock_is_held_until_the_file_is_complete() {
  std::ofstream(path_of("data")) << "text";
  const ArrayFile::Place place{9, {path_of("locked")}, path_of("data")};
  int builds = 0;
  for (int i = 0; i < 2; ++i) {
    const auto built = ArrayFile::load_or_build(
        place, {1 << 20, 0, 0, 0}, [&](const auto& to) {
          ++builds;
          std::memset(to[0].data(), 1, to[0].size());
          return Status();
        });
    CHECK(built.ok());
  }
  CHECK_EQ(builds, 1);
}

// Each byte of the file is checked.
void test_damaged_file_is_built_again() {
  int builds = 0;
  check_bytes(open({"damaged"}, 7, 3, builds).value(), 3);
  const auto size =
      static_cast<std::streamoff>(fs::file_size(path_of("damaged")));
  CHECK_EQ(size, 64 + 2 * 192);
  for (std::streamoff at = 0; at < size; ++at) {
    std::fstream file(path_of("damaged"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 0x10));
    file.close();
    const int before = builds;
    check_bytes(open({"damaged"}, 7, 3, builds).value(), 3);
    CHECK_EQ(builds, before + 1);
  }
}

void test_truncated_file_is_built_again() {
  int builds = 0;
  for (const std::uintmax_t size : {447U, 64U, 63U, 0U}) {
    check_bytes(open({"truncated"}, 7, 3, builds).value(), 3);
    fs::resize_file(path_of("truncated"), size);
    const int before = builds;
    check_bytes(open({"truncated"}, 7, 3, builds).value(), 3);
    CHECK_EQ(builds, before + 1);
  }
}

void test_first_writable_path_is_used() {
  int builds = 0;
  std::ofstream(path_of("file")) << "text";
  const auto arrays = open({"file/below", "second"}, 7, 3, builds).value();
  CHECK_EQ(arrays.path(), path_of("second"));
  const auto unsaved = open({"file/below"}, 7, 3, builds).value();
  CHECK_EQ(unsaved.path(), "");
  check_bytes(unsaved, 3);
}

// The file is complete before it is known that it cannot get its name.
void test_path_that_fails_late_is_skipped() {
  int builds = 0;
  fs::create_directories(path_of("taken") + "/file");
  const ArrayFile::Sizes sizes{2 << 20, 0, 0, 0};
  const auto arrays = open({"taken", "free"}, 7, 3, builds, sizes).value();
  CHECK_EQ(arrays.path(), path_of("free"));
  CHECK_EQ(std::to_integer<int>(arrays.array(0)[(2 << 20) - 1]), 3);
  const auto unsaved = open({"taken"}, 7, 4, builds, sizes).value();
  CHECK_EQ(unsaved.path(), "");
  CHECK_EQ(std::to_integer<int>(unsaved.array(0)[(2 << 20) - 1]), 4);
  CHECK_EQ(builds, 2);
}

void test_failed_build_saves_nothing() {
  const ArrayFile::Place place{1, {path_of("failed")}, ""};
  const auto failed = ArrayFile::load_or_build(place, kSizes, [](const auto&) {
    return Status(Code::kInvalidArgument, "no data");
  });
  CHECK_EQ(failed.status().message(), "no data");
  CHECK(!fs::exists(path_of("failed")));
}

void test_impossible_size_is_an_error() {
  int builds = 0;
  const auto failed =
      open({"huge"}, 1, 3, builds, {~std::uint64_t{0}, 1, 1, 1});
  CHECK(failed.status().code() == Code::kNoMemory);
  CHECK_EQ(builds, 0);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  fs::create_directories(folder());
  test_arrays_are_built_once();
  test_other_key_or_sizes_are_built_again();
  test_arrays_can_be_read_while_they_are_saved();
  test_lock_is_held_until_the_file_is_complete();
  test_damaged_file_is_built_again();
  test_truncated_file_is_built_again();
  test_first_writable_path_is_used();
  test_path_that_fails_late_is_skipped();
  test_failed_build_saves_nothing();
  test_impossible_size_is_an_error();
  fs::remove_all(folder());
}
