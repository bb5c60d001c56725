#include <string>
#include <string_view>
#include <vector>

#include "core/array_record/record_writer.hpp"
#include "core/bag/bag_file.hpp"
#include "core/check.hpp"
#include "core/files/local_file.hpp"
#include "core/kept_record.hpp"

namespace gristmill {
namespace {

// Output of `zstd` for "hello", and for 500 times "q" without a known size.
constexpr std::string_view kHello("(\xb5/\xfd \x05)\0\0hello", 14);
constexpr std::string_view kUnknown(
    "(\xb5/\xfd\0\0M\0\0\x10qq\x01\0\xef*\xc0\x02", 18);

File::Ptr local(const std::string& path) {
  auto file = LocalFile::open(path, LocalFile::Access::kPread);
  CHECK(file.ok());
  return std::move(file).value();
}

Bytes limits_of(const std::vector<std::string_view>& records) {
  Bytes limits;
  std::uint64_t end = 0;
  for (const auto record : records) append_u64(limits, end += record.size());
  return limits;
}

Bytes joined(const std::vector<std::string_view>& records) {
  Bytes file;
  for (const auto record : records) append(file, bytes_of(record));
  return file;
}

Bytes bag_of(const std::vector<std::string_view>& records) {
  Bytes file = joined(records);
  append(file, limits_of(records));
  return file;
}

// Returns a record, or the error.
std::string record_of(const BagFile& file, std::int64_t number) {
  KeptRecord sink;
  const RecordReader::Request request{number, 0};
  const Status status = file.read({&request, 1}, sink);
  if (!status.ok()) return status.message();
  std::int64_t size = -1;
  CHECK(file.sizes({&request, 1}, {&size, 1}).ok());
  CHECK_EQ(static_cast<std::size_t>(size), sink.record.size());
  return {reinterpret_cast<const char*>(sink.record.data()),
          sink.record.size()};
}

void test_records_equal_written_ones() {
  const std::vector<std::string_view> records{"one", "", "three", ""};
  const TemporaryFile disk(bag_of(records));
  CHECK_EQ(BagLimits::count(*local(disk.path()), nullptr).value(), 4u);
  auto opened = BagFile::open(local(disk.path()), {});
  CHECK(opened.ok());
  const BagFile& file = *opened.value();
  CHECK_EQ(file.size(), 4u);
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK_EQ(record_of(file, static_cast<std::int64_t>(i)), records[i]);
  }
}

void test_separate_limits_file_is_used() {
  const std::vector<std::string_view> records{"one", "two"};
  const TemporaryFile disk(joined(records));
  const TemporaryFile limits(limits_of(records));
  auto file = BagFile::open(local(disk.path()), {local(limits.path()), false});
  CHECK_EQ(record_of(*file.value(), 1), "two");
  const File::Ptr separate = local(limits.path());
  CHECK_EQ(BagLimits::count(*local(disk.path()), separate.get()).value(), 2u);
}

void test_zstd_frames_are_decompressed() {
  const TemporaryFile disk(bag_of({kHello, "", kUnknown}));
  auto opened = BagFile::open(local(disk.path()), {nullptr, true});
  const BagFile& file = *opened.value();
  CHECK(!file.knows_sizes());
  CHECK_EQ(record_of(file, 0), "hello");
  CHECK_EQ(record_of(file, 1), "");
  CHECK_EQ(record_of(file, 2), std::string(500, 'q'));
}

void test_damaged_frame_is_error_of_its_record() {
  const TemporaryFile disk(
      bag_of({"plain", kHello.substr(0, 12), kUnknown.substr(0, 14)}));
  auto opened = BagFile::open(local(disk.path()), {nullptr, true});
  const BagFile& file = *opened.value();
  const std::string path = disk.path();
  CHECK_EQ(record_of(file, 0),
           path + ": record 0 at offset 0: it is not compressed with zstd");
  CHECK(record_of(file, 1).starts_with(path + ": record 1 at offset 5: zstd"));
  CHECK(record_of(file, 2).starts_with(path + ": record 2 at offset 17: zstd"));
}

void test_invalid_limits_are_errors() {
  const auto message = [](const Bytes& contents) {
    const TemporaryFile disk(contents);
    auto opened = BagFile::open(local(disk.path()), {});
    CHECK(!opened.ok());
    return opened.status().message();
  };
  CHECK(message(Bytes(7)).find("7 bytes, expected at least 8") !=
        std::string::npos);
  Bytes beyond;
  append_u64(beyond, 9);
  CHECK(message(beyond).find("offset 9 of 8") != std::string::npos);
  Bytes falling;
  for (const std::uint64_t limit : {0, 1, 0}) append_u64(falling, limit);
  CHECK(message(falling).find("limit of record 1 is 1") != std::string::npos);
}

void test_empty_file_has_size_0() {
  const TemporaryFile disk(Bytes{});
  CHECK_EQ(BagFile::open(local(disk.path()), {}).value()->size(), 0u);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_records_equal_written_ones();
  test_separate_limits_file_is_used();
  test_zstd_frames_are_decompressed();
  test_damaged_frame_is_error_of_its_record();
  test_invalid_limits_are_errors();
  test_empty_file_has_size_0();
}
