#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/files/local_file.hpp"
#include "core/tf_record/tf_record_index.hpp"
#include "core/tf_record/tf_record_sidecar.hpp"
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
  auto index = TfRecordIndex::scan(file, progress);
  if (!index.ok()) std::cerr << index.status().message() << std::endl;
  CHECK(index.ok());
  CHECK_EQ(progress.done_bytes.load(), file.size());
  return std::move(index).value();
}

std::string scan_error(const Bytes& contents) {
  const TemporaryFile disk(contents);
  ScanProgress progress;
  const auto index = TfRecordIndex::scan(*open(disk.path()), progress);
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

void finds_every_record() {
  for (const auto& records :
       {tf_records(), std::vector<Bytes>(1000, noise(5)), std::vector<Bytes>{},
        std::vector<Bytes>(100, Bytes()),
        std::vector<Bytes>(40, noise(100000))}) {
    const TemporaryFile disk(tf_file_of(records));
    is_of(scan(disk.path()), records);
  }
}

void takes_few_bytes_a_record() {
  const TemporaryFile disk(tf_file_of(std::vector<Bytes>(20000, noise(1024))));
  CHECK(scan(disk.path()).held_bytes() < 5 * 20000);
}

void a_truncated_file_is_refused() {
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

void absurd_lengths_are_refused() {
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

void damaged_lengths_are_refused() {
  const Bytes good = tf_file_of({noise(10), noise(30)});
  for (std::size_t at = 26; at < 38; ++at) {
    Bytes bad = good;
    bad[at] ^= std::byte{0x20};
    const std::string error = scan_error(bad);
    CHECK(contains(error, "record 1 at offset 26: the checksum of its length"));
    CHECK(contains(error, "damaged from here on"));
  }
}

void other_files_are_refused() {
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

// The length of the first record may look like the magic number of GZIP.
void a_good_head_is_no_compressed_file() {
  const TemporaryFile disk(tf_file_of({noise(0x8b1f), noise(0x9c78)}));
  CHECK_EQ(scan(disk.path()).size(), 2u);
  CHECK_EQ(frame_compression(head_of(0x9c78)), "");
}

void a_scan_can_be_cancelled() {
  const TemporaryFile disk(tf_file_of(tf_records()));
  ScanProgress progress;
  progress.cancelled = true;
  const auto index = TfRecordIndex::scan(*open(disk.path()), progress);
  CHECK(!index.ok() && contains(index.status().message(), "cancelled"));
}

void sidecars_are_read_back() {
  const FileStamp none{0, 5};
  for (const auto& records : {tf_records(), std::vector<Bytes>{}}) {
    const TemporaryFile disk(tf_file_of(records));
    const auto index = scan(disk.path());
    const FileStamp stamp = FileStamp::of(*open(disk.path()));
    const auto contents = pack_sidecar(index, stamp);
    CHECK(contents.size() <= 40 + 8 * records.size());
    auto parsed = parse_sidecar(contents, stamp);
    CHECK(parsed.ok());
    is_of(parsed.value(), records);
    CHECK(!parse_sidecar(contents, none).ok());
    CHECK(!parse_sidecar(contents, {stamp.size, stamp.version + 1}).ok());
    CHECK(!parse_sidecar(contents, {stamp.size + 1, stamp.version}).ok());
  }
}

void damaged_sidecars_are_refused() {
  const TemporaryFile disk(tf_file_of({noise(10), noise(300), Bytes()}));
  const FileStamp stamp = FileStamp::of(*open(disk.path()));
  const auto good = pack_sidecar(scan(disk.path()), stamp);
  for (std::size_t at = 0; at < good.size(); ++at) {
    Bytes bad = good;
    bad[at] ^= std::byte{1};
    CHECK(!parse_sidecar(bad, stamp).ok());
    bad.assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(at));
    CHECK(!parse_sidecar(bad, stamp).ok());
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  CHECK(!parse_sidecar(longer, stamp).ok());
}

// A terabyte that takes no room on the disk would take memory.
void a_huge_sidecar_is_not_read() {
  const TemporaryFile sidecar(Bytes{});
  CHECK_EQ(truncate(sidecar.path().c_str(), off_t{1} << 40), 0);
  const auto loaded = load_sidecar(sidecar.path(), {1000, 5});
  CHECK(!loaded.ok());
  CHECK(contains(loaded.status().message(), "more records than the file has"));
}

void sidecars_are_saved_whole() {
  char folder[] = "/tmp/gristmill_sidecar_XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/index";
  const TemporaryFile disk(tf_file_of(tf_records()));
  const auto index = scan(disk.path());
  const FileStamp stamp = FileStamp::of(*open(disk.path()));
  CHECK(!load_sidecar(path, stamp).ok());
  CHECK(save_sidecar(path, index, stamp).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        CHECK(save_sidecar(path, index, stamp).ok());
        CHECK(load_sidecar(path, stamp).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(std::remove(path.c_str()), 0);
  CHECK_EQ(rmdir(folder), 0);  // Nothing else was left in it.
  const Status status = save_sidecar("/proc/none/index", index, stamp);
  CHECK(status.code() == Code::kSystem &&
        contains(status.message(), "/proc/none/index: "));
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  finds_every_record();
  takes_few_bytes_a_record();
  a_truncated_file_is_refused();
  absurd_lengths_are_refused();
  damaged_lengths_are_refused();
  other_files_are_refused();
  a_good_head_is_no_compressed_file();
  a_scan_can_be_cancelled();
  sidecars_are_read_back();
  damaged_sidecars_are_refused();
  a_huge_sidecar_is_not_read();
  sidecars_are_saved_whole();
}
