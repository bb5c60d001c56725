#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "core/array_record/record_file.hpp"
#include "core/array_record/record_writer.hpp"
#include "core/check.hpp"
#include "core/files/local_file.hpp"

namespace gristmill {
namespace {

using Access = LocalFile::Access;
using FilePtr = std::shared_ptr<const RecordFile>;

std::shared_ptr<ChunkCache> no_cache() {
  return std::make_shared<ChunkCache>(0);
}

// Keeps each record in its own buffer.
struct Kept final : RecordFile::Sink {
  Result<std::span<std::byte>> place(std::size_t slot,
                                     std::uint64_t size) override {
    Bytes& bytes = slots[slot];
    bytes.resize(size);
    return std::span(bytes);
  }
  std::map<std::size_t, Bytes> slots;
};

// Different records whose sizes cover every case at the end of a block.
std::vector<Bytes> some_records() {
  std::vector<Bytes> records;
  std::uint32_t state = 1;
  for (const std::size_t size :
       {0u, 1u, 100u, 65000u, 300u, 17u, 0u, 65512u, 70000u, 200000u, 5u,
        40000u, 131072u, 65471u, 65472u, 65473u, 1u, 20000u}) {
    Bytes record(size);
    for (std::byte& byte : record) {
      state = state * 1664525 + 1013904223;
      byte = static_cast<std::byte>(state >> 24);
    }
    records.push_back(record);
  }
  return records;
}

Bytes file_of(const std::vector<Bytes>& records, std::size_t group) {
  RecordWriter writer;
  for (std::size_t i = 0; i < records.size(); i += group) {
    const auto end = std::min(records.size(), i + group);
    writer.records({records.begin() + static_cast<std::ptrdiff_t>(i),
                    records.begin() + static_cast<std::ptrdiff_t>(end)});
  }
  return writer.finish();
}

Result<FilePtr> try_open(const std::string& path,
                         const RecordFile::Options& options, Access access) {
  auto file = LocalFile::open(path, access);
  if (!file.ok()) return file.status();
  return RecordFile::open(std::move(file).value(), options);
}

FilePtr open(const std::string& path, const RecordFile::Options& options = {},
             Access access = Access::kPread) {
  auto file = try_open(path, options, access);
  if (!file.ok()) std::cerr << file.status().message() << std::endl;
  CHECK(file.ok());
  return file.value();
}

std::string open_error(const std::string& path,
                       const RecordFile::Options& options = {},
                       Access access = Access::kPread) {
  auto file = try_open(path, options, access);
  CHECK(!file.ok());
  return file.status().message();
}

Status read(const RecordFile& file, std::span<const std::int64_t> records,
            Kept& to) {
  auto requests = file.plan(records);
  if (!requests.ok()) return requests.status();
  return file.read(requests.value(), to);
}

std::string read_error(const RecordFile& file, std::int64_t record) {
  Kept kept;
  return read(file, std::span(&record, 1), kept).message();
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "'" << part << "' is not in '" << text << "'" << std::endl;
  return false;
}

void test_all_records_equal_written_ones(std::size_t group,
                                         const RecordFile::Options& options,
                                         Access access) {
  const auto records = some_records();
  const TemporaryFile disk(file_of(records, group));
  const FilePtr file = open(disk.path(), options, access);
  CHECK_EQ(file->size(), records.size());
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < 2 * records.size(); ++i) {
    order.push_back(static_cast<std::int64_t>(i * 7 % records.size()));
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
  for (const std::int64_t one : order) {
    Kept single;
    CHECK(read(*file, std::span(&one, 1), single).ok());
    CHECK(single.slots[0] == records[static_cast<std::size_t>(one)]);
  }
}

void test_any_changed_byte_of_chunk_is_error(std::size_t group) {
  const auto records = some_records();
  const Bytes good = file_of(records, group);
  const TemporaryFile disk(good);
  const FilePtr whole = open(disk.path());
  for (std::uint64_t chunk = 0; chunk < whole->index().num_chunks(); ++chunk) {
    const auto place = whole->index().chunks.at(chunk);
    for (const std::uint64_t at :
         {place.begin, place.begin + 9, (place.begin + place.end) / 2,
          place.end - 1}) {
      Bytes bad = good;
      bad[at] ^= std::byte{0x10};
      disk.write(bad);
      const FilePtr file = open(disk.path());
      const auto record = static_cast<std::int64_t>(chunk * group);
      CHECK(contains(read_error(*file, record), disk.path() + ": record "));
      const std::int64_t other = chunk == 0 ? 17 : 0;
      CHECK_EQ(read_error(*file, other), "");
    }
  }
}

void test_damaged_block_header_is_named() {
  const auto records = some_records();
  Bytes bad = file_of(records, 1);
  bad[kBlockBytes * 3 + 5] ^= std::byte{1};
  const TemporaryFile disk(bad);
  for (const auto access : {Access::kPread, Access::kMmap}) {
    const FilePtr file =
        open(disk.path(), {Verify::kHeaders, no_cache()}, access);
    int errors = 0;
    for (std::int64_t i = 0; i < 18; ++i) {
      const std::string error = read_error(*file, i);
      if (error.empty()) continue;
      CHECK(contains(error, "block header at offset 196608: its hash is 0x"));
      ++errors;
    }
    CHECK_EQ(errors, 1);
    const FilePtr trusting =
        open(disk.path(), {Verify::kNone, no_cache()}, access);
    for (std::int64_t i = 0; i < 18; ++i) {
      CHECK_EQ(read_error(*trusting, i), "");
    }
  }
}

void test_record_out_of_range_is_error() {
  const TemporaryFile disk(file_of(some_records(), 7));
  const FilePtr file = open(disk.path());
  for (const std::int64_t record : {std::int64_t{-1}, std::int64_t{18}}) {
    Kept kept;
    const Status status = read(*file, std::span(&record, 1), kept);
    CHECK(status.code() == Code::kOutOfRange);
    CHECK_EQ(status.message(), disk.path() + ": record " +
                                   std::to_string(record) +
                                   " is out of range: there are 18 records");
  }
}

void test_file_without_records_has_size_0() {
  const TemporaryFile disk(file_of({}, 1));
  const FilePtr file = open(disk.path());
  CHECK_EQ(file->size(), 0u);
  CHECK(contains(read_error(*file, 0), "out of range"));
}

void test_wrong_file_length_is_error() {
  const Bytes good = file_of(some_records(), 1);
  const TemporaryFile disk({});
  CHECK(contains(open_error(disk.path()), ": the file has 0 bytes"));
  CHECK(contains(open_error(disk.path(), {}, Access::kMmap),
                 ": the file has 0 bytes"));
  Bytes bad = good;
  bad.pop_back();
  disk.write(bad);
  CHECK(contains(open_error(disk.path()), "a multiple of 65536"));
  bad.assign(good.begin(), good.end() - kBlockBytes);
  disk.write(bad);
  CHECK(contains(open_error(disk.path()), "postscript: chunk at offset "));
  bad = good;
  bad.resize(good.size() + kBlockBytes);
  disk.write(bad);
  CHECK(contains(open_error(disk.path()), "postscript: "));
  CHECK(contains(open_error("/tmp"), "found a directory"));
  CHECK(contains(open_error("/tmp/no such file"), "open failed"));
}

void test_damaged_footer_is_error() {
  const Bytes good = file_of(some_records(), 1);
  RecordWriter writer;
  for (const Bytes& record : some_records()) writer.records({record});
  writer.finish();
  for (const std::uint64_t at : {std::uint64_t{3}, std::uint64_t{60}}) {
    Bytes bad = good;
    bad[writer.footer_at + at] ^= std::byte{4};
    const TemporaryFile disk(bad);
    const std::string error = open_error(disk.path());
    CHECK(contains(
        error, "footer: chunk at offset " + std::to_string(writer.footer_at)));
    CHECK(contains(error, ", expected 0x"));
  }
}

// A footer with correct hashes can still have invalid values.
void test_inconsistent_footer_is_error() {
  const auto lying = [](unsigned field, std::uint64_t value) {
    RecordWriter writer;
    for (int i = 0; i < 3; ++i) writer.records({bytes_of("record")});
    std::uint64_t fields[] = {64 + 2 * 49, 6, 1};
    fields[field - 1] = value;
    Bytes entry;
    for (unsigned i = 0; i < 3; ++i) {
      append_varint(entry, (i + 1) * 8);
      append_varint(entry, fields[i]);
    }
    writer.footer_[2] = entry;
    return writer.finish();
  };
  const auto error_of = [&](unsigned field, std::uint64_t value) {
    const TemporaryFile disk(lying(field, value));
    return open_error(disk.path());
  };
  CHECK(contains(error_of(1, 1 << 20), "its chunk is at offset 1048576"));
  CHECK(contains(error_of(1, 5), "its chunk is at offset 5"));
  CHECK(contains(error_of(2, ~0ull), "its chunk has 18446744073709551615"));
  CHECK(contains(error_of(3, 2), "its chunk has 2 records, expected 1"));
  CHECK(contains(error_of(3, 0), "its chunk has 0 records"));
  const TemporaryFile disk(lying(2, 7));
  CHECK(contains(read_error(*open(disk.path()), 2), "but the footer lists"));
}

void test_modified_file_is_error(Access access, std::size_t group) {
  const Bytes good = file_of(some_records(), group);
  const TemporaryFile disk(good);
  const FilePtr file = open(disk.path(), {Verify::kAll, no_cache()}, access);
  CHECK_EQ(read_error(*file, 9), "");
  CHECK_EQ(truncate(disk.path().c_str(), kBlockBytes), 0);
  const std::string error = read_error(*file, 9);
  CHECK(contains(error, disk.path() + ": "));
  CHECK(contains(error, "the file changed while it was open"));
  if (access == Access::kPread && group == 1) {
    CHECK_EQ(read_error(*file, 1), "");
  }
  disk.write(good);  // Another process may restore the file.
  CHECK_EQ(read_error(*file, 9), "");
  Bytes longer = good;
  longer.resize(good.size() + 100);
  disk.write(longer);
  CHECK_EQ(read_error(*file, 9), "");
  disk.write(Bytes(good.size()));
  CHECK(contains(read_error(*file, 9), "written to while it was open"));
}

void test_replaced_file_is_still_readable() {
  const auto records = some_records();
  const TemporaryFile disk(file_of(records, 1));
  const FilePtr file = open(disk.path());
  CHECK_EQ(unlink(disk.path().c_str()), 0);
  disk.write(file_of({bytes_of("another")}, 1));
  Kept kept;
  const std::int64_t record = 9;
  CHECK(read(*file, std::span(&record, 1), kept).ok());
  CHECK(kept.slots[0] == records[9]);
}

void test_threads_read_one_file(std::size_t group, std::size_t cache_bytes) {
  const auto records = some_records();
  const TemporaryFile disk(file_of(records, group));
  const FilePtr file = open(
      disk.path(), {Verify::kAll, std::make_shared<ChunkCache>(cache_bytes)});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t k = 0; k < 100; ++k) {
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

void test_cuts_share_no_chunk() {
  const TemporaryFile disk(file_of(some_records(), 4));
  const FilePtr file = open(disk.path());
  const std::vector<std::int64_t> order = {17, 3, 2, 9, 1, 0, 10, 11, 8, 8};
  const auto requests = file->plan(order).value();
  for (std::size_t parts = 1; parts < 8; ++parts) {
    const auto cuts = file->cut(requests, parts);
    CHECK(cuts.size() <= parts);
    std::size_t total = 0;
    std::int64_t last = -1;
    for (const auto cut : cuts) {
      CHECK(!cut.empty() && cut.front().record / 4 != last);
      last = cut.back().record / 4;
      total += cut.size();
    }
    CHECK_EQ(total, order.size());
  }
}

// A file that records the ranges that are read.
class FarFile final : public File {
 public:
  FarFile(Bytes bytes, const Hints& hints)
      : File("far", bytes.size(), hints), bytes_(std::move(bytes)) {}

  Status read(std::uint64_t offset, std::span<std::byte> to) const override {
    reads.push_back({offset, to.size()});
    if (offset >= fails_from) {
      return Status::raised(std::make_shared<int>(17), "");
    }
    std::ranges::copy(std::span(bytes_).subspan(offset, to.size()), to.begin());
    return {};
  }
  [[nodiscard]] std::string describe_change() const override { return ""; }

  mutable std::vector<std::pair<std::uint64_t, std::size_t>> reads;
  std::uint64_t fails_from = ~std::uint64_t{0};

 private:
  const Bytes bytes_;
};

std::vector<Bytes> even_records(std::size_t count) {
  std::vector<Bytes> records(count);
  for (std::size_t i = 0; i < count; ++i) {
    records[i].assign(10'000, static_cast<std::byte>(i));
  }
  return records;
}

void test_remote_file_takes_few_requests(std::size_t tail_bytes,
                                         std::size_t opening) {
  const auto records = even_records(20'000 / 100);
  const Bytes bytes = file_of(records, 1);
  auto* far = new FarFile(bytes, {50'000, 400'000, tail_bytes, 4});
  const FilePtr file = RecordFile::open(File::Ptr(far), {}).value();
  CHECK_EQ(far->reads.size(), opening);
  CHECK_EQ(file->parallel(), 4u);
  far->reads.clear();
  Kept kept;
  // There are four records of 10 kB between 1 and 6, and five between 6 and 12.
  CHECK(read(*file, std::vector<std::int64_t>{1, 6, 12, 13, 100}, kept).ok());
  CHECK_EQ(far->reads.size(), 3u);
  CHECK(kept.slots[1] == records[6] && kept.slots[4] == records[100]);
  far->reads.clear();
  std::vector<std::int64_t> all(records.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i);
  }
  const auto requests = file->plan(all).value();
  const auto cuts = file->cut(requests, requests.size());
  CHECK_EQ(cuts.size(), 5u);  // 2 MB in cuts of 400 kB.
  for (const auto cut : cuts) CHECK(file->read(cut, kept).ok());
  CHECK(far->reads.size() <= 2 * cuts.size());
  for (const auto& [offset, size] : far->reads) CHECK(size <= 400'000);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(kept.slots[i] == records[i]);
  }
}

void test_error_of_callback_is_passed_on() {
  const Bytes bytes = file_of(even_records(200), 1);
  auto* far = new FarFile(bytes, {0, 400'000, 0, 4});
  const FilePtr file = RecordFile::open(File::Ptr(far), {}).value();
  far->fails_from = 100'000;
  far->reads.clear();
  Kept kept;
  CHECK(read(*file, std::vector<std::int64_t>{2}, kept).ok());
  const Status status =
      read(*file, std::vector<std::int64_t>{2, 50, 51, 52}, kept);
  CHECK(status.code() == Code::kRaised);
  CHECK_EQ(status.message(), "far: record 50");
  CHECK_EQ(*static_cast<const int*>(status.cause().get()), 17);
  CHECK_EQ(far->reads.size(), 3u);  // The three others cause no further reads.
  auto* broken = new FarFile(bytes, {0, 400'000, 0, 4});
  broken->fails_from = 0;
  const auto failed = RecordFile::open(File::Ptr(broken), {});
  CHECK(failed.status().code() == Code::kRaised);
  CHECK_EQ(failed.status().message(), "");
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  for (const std::size_t group : {1u, 2u, 5u, 100u}) {
    for (const auto access : {Access::kPread, Access::kMmap}) {
      for (const auto verify :
           {Verify::kAll, Verify::kHeaders, Verify::kNone}) {
        test_all_records_equal_written_ones(group, {verify}, access);
      }
      test_all_records_equal_written_ones(group, {Verify::kAll, no_cache()},
                                          access);
    }
    test_threads_read_one_file(group, 1u << 20);
    test_threads_read_one_file(group, 1000);
  }
  test_any_changed_byte_of_chunk_is_error(1);
  test_any_changed_byte_of_chunk_is_error(3);
  test_damaged_block_header_is_named();
  test_record_out_of_range_is_error();
  test_file_without_records_has_size_0();
  test_wrong_file_length_is_error();
  test_damaged_footer_is_error();
  test_inconsistent_footer_is_error();
  test_modified_file_is_error(Access::kPread, 1);
  test_modified_file_is_error(Access::kPread, 3);
  test_modified_file_is_error(Access::kMmap, 1);
  test_modified_file_is_error(Access::kMmap, 3);
  test_replaced_file_is_still_readable();
  test_cuts_share_no_chunk();
  test_remote_file_takes_few_requests(1 << 20, 1);
  test_remote_file_takes_few_requests(kBlockBytes, 2);
  test_error_of_callback_is_passed_on();
}
