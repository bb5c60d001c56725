#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/check.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/index_file.hpp"
#include "core/files/local_file.hpp"
#include "core/tf_record/tf_record_index.hpp"
#include "core/tf_record/tf_record_writer.hpp"

namespace gristmill {
namespace {

File::Ptr open(const std::string& path) {
  auto file = LocalFile::open(path, LocalFile::Access::kPread);
  CHECK(file.ok());
  return std::move(file).value();
}

TfRecordIndex scan(const std::string& path) {
  ScanProgress progress;
  const File::Ptr opened = open(path);
  const File& file = *opened;
  auto index = TfRecordIndex::read(file, {}, progress);
  if (!index.ok()) std::cerr << index.status().message() << std::endl;
  CHECK(index.ok());
  CHECK_EQ(progress.done_bytes.load(), file.size());
  return std::move(index).value();
}

std::string scan_error(const Bytes& contents) {
  const TemporaryFile disk(contents);
  ScanProgress progress;
  const auto index = TfRecordIndex::read(*open(disk.path()), {}, progress);
  CHECK(!index.ok());
  CHECK(index.status().code() == Code::kInvalidArgument);
  return index.status().message();
}

void is_of(const TfRecordIndex& index, const std::vector<Bytes>& records) {
  CHECK_EQ(index.size(), records.size());
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto place = index.place(i);
    CHECK_EQ(place.begin, at);
    CHECK_EQ(place.data_size(), records[i].size());
    at = place.end;
  }
}

void test_every_record_is_found() {
  for (const auto& records :
       {tf_records(), std::vector<Bytes>(1000, noise(5)), std::vector<Bytes>{},
        std::vector<Bytes>(100, Bytes()),
        std::vector<Bytes>(40, noise(100000))}) {
    const TemporaryFile disk(tf_file_of(records));
    is_of(scan(disk.path()), records);
  }
}

void test_index_takes_few_bytes_per_record() {
  const TemporaryFile disk(tf_file_of(std::vector<Bytes>(20000, noise(1024))));
  CHECK(scan(disk.path()).held_bytes() < 5 * 20000);
}

void test_truncated_file_is_error() {
  const Bytes whole = tf_file_of({noise(10), noise(30)});
  for (std::size_t cut = 1; cut < 46; ++cut) {
    const std::string error =
        scan_error(Bytes(whole.begin(), whole.end() - static_cast<int>(cut)));
    CHECK(contains(error, "record 1 at offset 26: "));
    CHECK(contains(error, cut <= 34
                              ? "it has 30 bytes, but the file ends " +
                                    std::to_string(34 - cut) +
                                    " bytes after its head"
                              : "the file ends within its length, after " +
                                    std::to_string(46 - cut)));
    CHECK(contains(error, "still being written, or was not copied whole"));
  }
}

void test_absurd_length_is_error() {
  for (const std::uint64_t length :
       {~std::uint64_t{0}, ~std::uint64_t{0} - 15, std::uint64_t{1} << 63,
        std::uint64_t{35}}) {
    Bytes file = frame_of(noise(10));
    append(file, head_of(length));
    append(file, noise(38));
    CHECK(contains(scan_error(file), "record 1 at offset 26: it has " +
                                         std::to_string(length) +
                                         " bytes, but the file ends 38 bytes"));
  }
}

void test_damaged_length_is_error() {
  const Bytes good = tf_file_of({noise(10), noise(30)});
  for (std::size_t at = 26; at < 38; ++at) {
    Bytes bad = good;
    bad[at] ^= std::byte{0x20};
    const std::string error = scan_error(bad);
    CHECK(contains(error, "record 1 at offset 26: the checksum of its length"));
    CHECK(contains(error, "damaged from here on"));
  }
}

void test_other_file_formats_are_errors() {
  CHECK(contains(scan_error(noise(1000)), "not a TFRecord file: record 0"));
  CHECK(contains(scan_error(noise(11)), "ends within its length, after 11"));
  Bytes compressed = noise(1000);
  compressed[0] = std::byte{0x1f};
  compressed[1] = std::byte{0x8b};
  CHECK(contains(scan_error(compressed), "compressed with GZIP"));
  for (const unsigned level : {0x01u, 0x5eu, 0x9cu, 0xdau}) {
    compressed[0] = std::byte{0x78};
    compressed[1] = static_cast<std::byte>(level);
    const std::string error = scan_error(compressed);
    CHECK(contains(error, "compressed with ZLIB"));
    CHECK(contains(error, "use sources.read_tf_records"));
  }
  CHECK(contains(scan_error(bytes_of("\x1f\x8b")), "compressed with GZIP"));
}

// The length of the first record may equal the magic number of GZIP.
void test_head_with_gzip_magic_is_a_record() {
  const TemporaryFile disk(tf_file_of({noise(0x8b1f), noise(0x9c78)}));
  CHECK_EQ(scan(disk.path()).size(), 2u);
  CHECK_EQ(frame_compression(head_of(0x9c78)), "");
}

void test_scan_can_be_cancelled() {
  const TemporaryFile disk(tf_file_of(tf_records()));
  ScanProgress progress;
  progress.cancelled = true;
  const auto index = TfRecordIndex::read(*open(disk.path()), {}, progress);
  CHECK(!index.ok() && contains(index.status().message(), "cancelled"));
}

// An index with wrong places, but with the size and time of the file.
void test_forged_index_stays_in_file() {
  char folder[] = "/tmp/gristmill_index_XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::vector<std::string> kept = {std::string(folder) + "/index"};
  const TemporaryFile disk(tf_file_of({noise(20), noise(20), noise(20)}));
  const File::Ptr file = open(disk.path());
  ScanProgress progress;
  auto made = TfRecordIndex::read(*file, kept, progress);
  CHECK(made.ok());
  CHECK_EQ(made.value().path(), kept[0]);
  CHECK_EQ(progress.done_bytes.load(), file->size());
  ScanProgress again;
  auto loaded = TfRecordIndex::read(*file, kept, again);
  CHECK(loaded.ok());
  CHECK_EQ(again.done_bytes.load(), 0u);
  CHECK_EQ(loaded.value().size(), 3u);

  const IndexFile::Origin origin{FileStamp::of(*file), 0x31726674};
  // Records that are too short, and a list that does not end with the file.
  PackedChunks close;
  for (std::uint64_t at = 0; at < 5; ++at) close.add(at, 0);
  close.finish(file->size());
  const IndexFile without_room{origin, 5, 1, "", std::move(close)};
  CHECK(without_room.save(kept[0]).ok());
  auto forged = TfRecordIndex::read(*file, kept, again);
  CHECK(forged.ok());
  CHECK_EQ(forged.value().size(), 5u);
  CHECK_EQ(forged.value().place(2).data_size(), 0u);
  PackedChunks few;
  few.add(0, 0);
  few.finish(36);
  const IndexFile too_short{origin, 1, 1, "", std::move(few)};
  CHECK(too_short.save(kept[0]).ok());
  auto anew = TfRecordIndex::read(*file, kept, again);
  CHECK(anew.ok());
  CHECK_EQ(anew.value().size(), 3u);
  CHECK_EQ(anew.value().path(), "");
  CHECK_EQ(std::remove(kept[0].c_str()), 0);
  CHECK_EQ(rmdir(folder), 0);  // It has no other files.
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_every_record_is_found();
  test_index_takes_few_bytes_per_record();
  test_truncated_file_is_error();
  test_absurd_length_is_error();
  test_damaged_length_is_error();
  test_other_file_formats_are_errors();
  test_head_with_gzip_magic_is_a_record();
  test_scan_can_be_cancelled();
  test_forged_index_stays_in_file();
}
