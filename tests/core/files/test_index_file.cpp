#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/base/crc32c.hpp"
#include "core/check.hpp"
#include "core/files/index_file.hpp"

namespace gristmill {
namespace {

using Bytes = std::vector<char>;

constexpr std::size_t kCheckedFrom = 16;
const IndexFile::Origin kOrigin{{1 << 20, 77}, 0x1234};

// A path in a folder that the destructor removes.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "indexXXXXXX";
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string path(const std::string& name) const {
    return path_ / name;
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

IndexFile index_of(std::uint64_t chunks) {
  IndexFile index{kOrigin, 3 * chunks, 3, "group_size:3", {}};
  for (std::uint64_t i = 0; i < chunks; ++i) {
    index.chunks.add(64 + 100 * i, i * i % 1000);
  }
  index.chunks.finish(1 << 20);
  return index;
}

Bytes read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const Bytes& bytes) {
  std::filesystem::remove(path);  // The old file may be mapped.
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void fix_checksum(Bytes& bytes) {
  const auto checked = std::as_bytes(std::span(bytes)).subspan(kCheckedFrom);
  const std::uint32_t checksum = crc32c(checked);
  std::memcpy(bytes.data() + 12, &checksum, sizeof checksum);
}

void test_index_is_read_back(const Folder& folder) {
  for (const std::uint64_t chunks : {0u, 1u, 63u, 64u, 65u, 5000u}) {
    const std::string path = folder.path("made/for/it/index");
    const IndexFile index = index_of(chunks);
    CHECK(index.save(path).ok());
    CHECK(index.save(path).ok());
    const auto found = IndexFile::load(path, kOrigin).take();
    CHECK_EQ(found.num_records, 3 * chunks);
    CHECK_EQ(found.group_size, 3u);
    CHECK_EQ(found.options, "group_size:3");
    CHECK_EQ(found.chunks.size(), chunks);
    CHECK_EQ(found.chunks.end(), 1u << 20);
    for (std::uint64_t i = 0; i < chunks; ++i) {
      CHECK_EQ(found.chunks.at(i).begin, index.chunks.at(i).begin);
      CHECK_EQ(found.chunks.at(i).end, index.chunks.at(i).end);
      CHECK_EQ(found.chunks.at(i).decoded_size, i * i % 1000);
    }
  }
  CHECK_EQ(folder.files(), 1u);  // Only the folder: no temporary file remains.
}

void test_index_of_other_file_is_error(const Folder& folder) {
  const std::string path = folder.path("index");
  CHECK(index_of(100).save(path).ok());
  for (const IndexFile::Origin& other :
       {IndexFile::Origin{{kOrigin.stamp.size + 1, 77}, 0x1234},
        IndexFile::Origin{{kOrigin.stamp.size, 78}, 0x1234},
        IndexFile::Origin{kOrigin.stamp, 0x1235}}) {
    CHECK(!IndexFile::load(path, other).ok());
  }
  CHECK(!IndexFile::load(folder.path("none"), kOrigin).ok());
}

void test_damaged_index_is_error(const Folder& folder) {
  const std::string path = folder.path("index");
  CHECK(index_of(130).save(path).ok());
  const Bytes good = read(path);
  for (std::size_t at = 0; at < good.size(); ++at) {
    Bytes bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    write(path, bad);
    CHECK(!IndexFile::load(path, kOrigin).ok());
    bad = Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(at));
    write(path, bad);
    CHECK(!IndexFile::load(path, kOrigin).ok());
  }
}

// No forged index causes an access outside the data file or the index.
void test_forged_index_stays_in_bounds(const Folder& folder) {
  const std::string path = folder.path("index");
  CHECK(index_of(130).save(path).ok());
  const Bytes good = read(path);
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    Bytes bad = good;
    for (auto changes = random() % 3 + 1; changes > 0; --changes) {
      const std::size_t room = bad.size() - 40;
      bad[40 + random() % room] = static_cast<char>(random());
    }
    if (random() % 8 == 0) bad.insert(bad.end(), random() % 40, 0);
    fix_checksum(bad);
    write(path, bad);
    auto loaded = IndexFile::load(path, kOrigin);
    if (!loaded.ok()) continue;
    ++accepted;
    const PackedChunks& chunks = loaded.value().chunks;
    for (std::uint64_t i = 0; i < chunks.size(); ++i) {
      const auto chunk = chunks.at(i);
      CHECK(chunk.begin <= chunk.end && chunk.end <= kOrigin.stamp.size);
    }
  }
  CHECK(accepted > 100);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_index_is_read_back(Folder());
  test_index_of_other_file_is_error(Folder());
  test_damaged_index_is_error(Folder());
  test_forged_index_stays_in_bounds(Folder());
}
