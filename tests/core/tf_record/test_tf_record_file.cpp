#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <ranges>
#include <thread>

#include "core/check.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/index_file.hpp"
#include "core/files/local_file.hpp"
#include "core/tf_record/tf_record_file.hpp"
#include "core/tf_record/tf_record_writer.hpp"

namespace gristmill {
namespace {

using Access = LocalFile::Access;
using FilePtr = std::shared_ptr<const TfRecordFile>;
using Options = TfRecordFile::Options;

// Keeps each record in its own buffer.
struct Kept final : RecordReader::Sink {
  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    Bytes& bytes = slots[slot];
    bytes.resize(size);
    return std::span(bytes);
  }
  std::map<std::size_t, Bytes> slots;
};

Result<FilePtr> try_open(const std::string& path, const Options& options,
                         Access access = Access::kPread) {
  ScanProgress progress;
  auto file = LocalFile::open(path, access);
  if (!file.ok()) return file.status();
  return TfRecordFile::open(std::move(file).value(), options, progress);
}

FilePtr open(const std::string& path, const Options& options = {},
             Access access = Access::kPread) {
  auto file = try_open(path, options, access);
  if (!file.ok()) std::cerr << file.status().message() << std::endl;
  CHECK(file.ok());
  return file.value();
}

Status read(const RecordReader& file, std::span<const std::int64_t> records,
            Kept& to) {
  auto requests = file.plan(records);
  if (!requests.ok()) return requests.status();
  return file.read(requests.value(), to);
}

std::string read_error(const RecordReader& file, std::int64_t record) {
  Kept kept;
  return read(file, std::span(&record, 1), kept).message();
}

// A folder for indices, which the destructor removes.
class Folder {
 public:
  Folder() { CHECK(mkdtemp(path_) != nullptr); }
  ~Folder() {
    for (const char* name : {"/a", "/b"})
      std::remove((path_ + std::string(name)).c_str());
    rmdir(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const {
    return path_ + ("/" + name);
  }

 private:
  char path_[32] = "/tmp/gristmill_folder_XXXXXX";
};

// Saves an index for `path` with the places of another file.
void forge(const std::string& kept, const TfRecordIndex& index,
           const std::string& path) {
  const File::Ptr file = LocalFile::open(path, Access::kPread).value();
  PackedChunks places;
  for (std::uint64_t i = 0; i < index.size(); ++i) {
    places.add(index.place(i).begin, 0);
  }
  places.finish(file->size());
  const IndexFile forged{{FileStamp::of(*file), 0x31726674},
                         index.size(),
                         1,
                         "",
                         std::move(places)};
  CHECK(forged.save(kept).ok());
}

void test_all_records_equal_written_ones(const Options& options,
                                         Access access) {
  const auto records = tf_records();
  const TemporaryFile disk(tf_file_of(records));
  const FilePtr file = open(disk.path(), options, access);
  CHECK_EQ(file->size(), records.size());
  CHECK(file->knows_sizes());
  for (const std::size_t step : {1u, 5u, 100u}) {
    std::vector<std::int64_t> order;
    for (std::size_t i = 0; i < 2 * records.size(); ++i) {
      order.push_back(static_cast<std::int64_t>(i * step % records.size()));
    }
    Kept kept;
    CHECK(read(*file, order, kept).ok());
    std::vector<std::int64_t> sizes(order.size());
    CHECK(file->sizes(file->plan(order).value(), sizes).ok());
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Bytes& expected = records[static_cast<std::size_t>(order[k])];
      CHECK(kept.slots[k] == expected);
      CHECK_EQ(sizes[k], static_cast<std::int64_t>(expected.size()));
    }
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto one = static_cast<std::int64_t>(i);
    Kept single;
    CHECK(read(*file, std::span(&one, 1), single).ok());
    CHECK(single.slots[0] == records[i]);
  }
}

// The index is loaded, so the heads are only read with their records.
void test_any_changed_byte_of_record_is_error(Access access,
                                              std::size_t record) {
  const Folder folder;
  const auto records = tf_records();
  const Bytes good = tf_file_of(records);
  const TemporaryFile disk(good);
  const auto place = open(disk.path())->index().place(record);
  const auto index = open(disk.path());
  for (const std::uint64_t at :
       {place.begin, place.begin + 9, place.begin + kFrameHead,
        place.end - kFrameTail - 1, place.end - 1}) {
    Bytes bad = good;
    bad[at] ^= std::byte{0x10};
    disk.write(bad);
    forge(folder / "a", index->index(), disk.path());
    const bool in_head = at < place.begin + kFrameHead;
    const bool in_length = at == place.begin;
    for (const Verify verify :
         {Verify::kAll, Verify::kHeaders, Verify::kNone}) {
      const FilePtr file = open(disk.path(), {verify, {folder / "a"}}, access);
      CHECK_EQ(file->index().path(), folder / "a");
      const std::string error =
          read_error(*file, static_cast<std::int64_t>(record));
      const bool seen = verify == Verify::kAll ||
                        (verify == Verify::kHeaders ? in_head : in_length);
      CHECK_EQ(error.empty(), !seen);
      if (seen) {
        const bool checked = verify != Verify::kNone;
        CHECK(contains(error, disk.path() + ": record " +
                                  std::to_string(record) + " at offset " +
                                  std::to_string(place.begin) +
                                  (checked ? ": the check" : ": it has")));
      }
      CHECK_EQ(read_error(*file, static_cast<std::int64_t>(record) + 1), "");
    }
  }
}

void test_bad_record_leaves_others_readable() {
  const auto records = std::vector<Bytes>(10, noise(50));
  Bytes bad = tf_file_of(records);
  bad[66 * 4 + 20] ^= std::byte{1};
  const TemporaryFile disk(bad);
  const FilePtr file = open(disk.path());
  Kept kept;
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  CHECK(contains(read(*file, all, kept).message(), "record 4 at offset 264"));
  for (std::size_t i = 0; i < 4; ++i) CHECK(kept.slots[i] == records[i]);
  for (const std::int64_t i : all)
    CHECK_EQ(read_error(*file, i).empty(), i != 4);
}

// The index is wrong, but its checksum and its stamp are correct.
void test_forged_index_does_not_cut_records(Options options, Access access) {
  const Folder folder;
  const TemporaryFile other(tf_file_of({noise(10), noise(30), noise(20)}));
  const TemporaryFile disk(tf_file_of({noise(20), noise(20), noise(20)}));
  forge(folder / "a", open(other.path())->index(), disk.path());
  options.index_paths = {folder / "a"};
  const FilePtr file = open(disk.path(), options, access);
  const std::string advice =
      "; if the file is whole, its index is wrong: delete " + (folder / "a");
  const std::string longer = read_error(*file, 0);
  CHECK(contains(longer, "it has 20 bytes, but the index lists 10" + advice));
  const std::string elsewhere = read_error(*file, 1);
  CHECK(contains(elsewhere, options.verify == Verify::kNone
                                ? "bytes, but the index lists 30"
                                : "the checksum of its length"));
  CHECK(contains(elsewhere, advice));
  CHECK_EQ(read_error(*file, 2), "");
}

void test_forged_index_does_not_cut_large_records(Verify verify) {
  const Folder folder;
  const TemporaryFile other(tf_file_of({noise(9'000), noise(31'000)}));
  const TemporaryFile disk(tf_file_of({noise(20'000), noise(20'000)}));
  forge(folder / "a", open(other.path())->index(), disk.path());
  const FilePtr file = open(disk.path(), {verify, {folder / "a"}});
  CHECK(contains(read_error(*file, 0),
                 "it has 20000 bytes, but the index lists 9000"));
  CHECK(contains(read_error(*file, 1), "delete " + (folder / "a")));
}

void test_record_out_of_range_is_error() {
  const TemporaryFile disk(tf_file_of({noise(3), noise(4)}));
  const FilePtr file = open(disk.path());
  for (const std::int64_t record : {std::int64_t{-1}, std::int64_t{2}}) {
    CHECK_EQ(read_error(*file, record),
             disk.path() + ": record " + std::to_string(record) +
                 " is out of range: there are 2 records");
  }
}

void test_empty_file_has_size_0() {
  const TemporaryFile disk(Bytes{});
  for (const auto access : {Access::kPread, Access::kMmap}) {
    const FilePtr file = open(disk.path(), {Verify::kAll, {}}, access);
    CHECK_EQ(file->size(), 0u);
    CHECK(contains(read_error(*file, 0), "out of range"));
  }
}

void test_first_matching_index_is_loaded() {
  const Folder folder;
  const TemporaryFile disk(tf_file_of(tf_records()));
  const std::string nowhere = "/proc/no such folder/a";
  CHECK_EQ(open(disk.path(), {Verify::kAll, {nowhere}})->index().path(), "");
  const FilePtr first = open(disk.path(), {Verify::kAll, {folder / "b"}});
  const Options options{Verify::kAll, {nowhere, folder / "a", folder / "b"}};
  const FilePtr second = open(disk.path(), options);
  CHECK_EQ(second->index().path(), folder / "b");
  CHECK_EQ(second->size(), first->size());
  static_cast<void>(open(disk.path(), {Verify::kAll, {folder / "a"}}));
  CHECK_EQ(open(disk.path(), options)->index().path(), folder / "a");

  // Damaged or outdated indices are ignored.
  TemporaryFile damaged(Bytes(100));
  CHECK_EQ(std::rename(damaged.path().c_str(), (folder / "a").c_str()), 0);
  CHECK_EQ(open(disk.path(), options)->index().path(), folder / "b");
  disk.write(tf_file_of({noise(9)}));
  const FilePtr changed = open(disk.path(), options);
  CHECK_EQ(changed->index().path(), folder / "a");
  CHECK_EQ(changed->size(), 1u);
}

void test_errors_name_file() {
  const TemporaryFile disk(noise(100));
  CHECK(contains(try_open(disk.path(), {}).status().message(),
                 disk.path() + ": not a TFRecord file: record 0 at offset 0"));
  CHECK(contains(try_open("/tmp", {}).status().message(), "found a directory"));
  CHECK(contains(try_open("/tmp/no such file", {}).status().message(),
                 "open failed"));
}

void test_modified_file_is_error(Access access) {
  const Bytes good = tf_file_of(tf_records());
  const TemporaryFile disk(good);
  const FilePtr file = open(disk.path(), {Verify::kAll, {}}, access);
  CHECK_EQ(read_error(*file, 9), "");
  CHECK_EQ(truncate(disk.path().c_str(), 100), 0);
  const std::string error = read_error(*file, 9);
  CHECK(contains(error, disk.path() + ": "));
  CHECK(contains(error, "the file changed while it was open"));
  disk.write(good);  // Another process may restore the file.
  CHECK_EQ(read_error(*file, 9), "");
  disk.write(noise(good.size()));
  CHECK(contains(read_error(*file, 9), "written to while it was open"));
}

void test_truncation_leaves_earlier_records_readable() {
  const auto records = std::vector<Bytes>(10, noise(50));
  const TemporaryFile disk(tf_file_of(records));
  const FilePtr file = open(disk.path());
  CHECK_EQ(truncate(disk.path().c_str(), 66 * 7), 0);
  Kept kept;
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  CHECK(contains(read(*file, all, kept).message(), "record 7 at offset 462"));
  for (std::size_t i = 0; i < 7; ++i) CHECK(kept.slots[i] == records[i]);
}

// A remote file that counts the reads.
class FarFile final : public File {
 public:
  FarFile(const Bytes& bytes, std::size_t& reads)
      : File("far", bytes.size(), {100, 1000, 0, 4}),
        bytes_(bytes),
        reads_(reads) {}

  Status read(std::uint64_t offset, std::span<std::byte> to) const override {
    ++reads_;
    std::ranges::copy(std::span(bytes_).subspan(offset, to.size()), to.begin());
    return {};
  }
  [[nodiscard]] std::string describe_change() const override { return ""; }

 private:
  const Bytes& bytes_;
  std::size_t& reads_;
};

void test_remote_file_is_read_in_its_steps() {
  const std::vector<Bytes> records(100, noise(84));  // Frames of 100 bytes.
  const Bytes bytes = tf_file_of(records);
  std::size_t reads = 0;
  ScanProgress progress;
  const FilePtr file =
      TfRecordFile::open(std::make_unique<FarFile>(bytes, reads), {}, progress)
          .value();
  CHECK_EQ(reads, 2u);  // The first head, and all heads.
  CHECK_EQ(file->parallel(), 4u);
  std::vector<std::int64_t> all(100);
  std::ranges::copy(std::views::iota(0, 100), all.begin());
  reads = 0;
  Kept kept;
  CHECK(read(*file, all, kept).ok());
  CHECK_EQ(reads, 10u);  // Each read has 1000 bytes.
  for (const auto& [slot, found] : kept.slots) {
    CHECK(found == records[slot]);
  }
  // Threads do not split the records of a single read.
  CHECK_EQ(file->cut(file->plan(all).value(), 100).size(), 10u);
  CHECK(file->shares_work(10, 11));
  CHECK(!file->shares_work(10, 13));
}

void test_threads_read_one_file(Access access) {
  const auto records = tf_records();
  const TemporaryFile disk(tf_file_of(records));
  const FilePtr file = open(disk.path(), {Verify::kAll, {}}, access);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t k = 0; k < 300; ++k) {
        const std::size_t i = (k * 5 + t) % records.size();
        const auto record = static_cast<std::int64_t>(i);
        Kept kept;
        CHECK(read(*file, std::span(&record, 1), kept).ok());
        CHECK(kept.slots[0] == records[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  for (const auto access : {Access::kPread, Access::kMmap}) {
    for (const auto verify : {Verify::kAll, Verify::kHeaders, Verify::kNone}) {
      test_all_records_equal_written_ones({verify, {}}, access);
      test_forged_index_does_not_cut_records({verify, {}}, access);
      test_forged_index_does_not_cut_large_records(verify);
    }
    for (const std::size_t record : {2u, 4u, 7u, 9u, 13u}) {
      test_any_changed_byte_of_record_is_error(access, record);
    }
    test_modified_file_is_error(access);
    test_threads_read_one_file(access);
  }
  test_bad_record_leaves_others_readable();
  test_record_out_of_range_is_error();
  test_empty_file_has_size_0();
  test_first_matching_index_is_loaded();
  test_errors_name_file();
  test_truncation_leaves_earlier_records_readable();
  test_remote_file_is_read_in_its_steps();
}
