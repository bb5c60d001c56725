#include <algorithm>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/tf_record/tf_record_parser.hpp"
#include "core/tf_record/tf_record_writer.hpp"

namespace gristmill {
namespace {

// The records of a stream and the first error.
struct Parsed {
  std::vector<Bytes> records;
  std::string error;
};

// Parses a stream in pieces of at most `step` bytes.
Parsed parse(TfRecordParser& parser, std::span<const std::byte> stream,
             std::size_t step) {
  Parsed parsed;
  const auto failed = [&](const Status& status) {
    parsed.error = status.message();
    return parsed;
  };
  for (;;) {
    auto ready = parser.has_complete_record();
    if (!ready.ok()) return failed(ready.status());
    if (ready.value()) {
      auto data = parser.take_record();
      if (!data.ok()) return failed(data.status());
      parsed.records.emplace_back(data.value().begin(), data.value().end());
      continue;
    }
    if (stream.empty()) return failed(parser.check_end());
    const auto room = parser.free_space().value();
    CHECK(!room.empty());
    const std::size_t count = std::min({room.size(), stream.size(), step});
    std::ranges::copy(stream.first(count), room.begin());
    parser.add_received(count);
    stream = stream.subspan(count);
  }
}

void test_stream_in_pieces_equals_whole(std::size_t step) {
  const auto records = tf_records();
  TfRecordParser parser(Verify::kAll, 0, 0);
  const Bytes stream = tf_file_of(records);
  const Parsed parsed = parse(parser, stream, step);
  CHECK_EQ(parsed.error, "");
  CHECK(parsed.records == records);
  CHECK_EQ(parser.record(), records.size());
  CHECK_EQ(parser.offset(), stream.size());
}

void test_parser_continues_at_offset() {
  const Bytes stream = tf_file_of({noise(20), Bytes()});
  TfRecordParser parser(Verify::kAll, 7, 1000);
  const Parsed parsed = parse(parser, std::span(stream).first(50), 9);
  CHECK_EQ(parsed.records.size(), 1u);
  CHECK(contains(parsed.error, "record 8 at offset 1036: it has 0 bytes, but"));
}

void test_damaged_data_leave_next_record() {
  Bytes stream = tf_file_of({noise(20), noise(30), noise(40)});
  stream[36 + kFrameHead] ^= std::byte{1};
  TfRecordParser parser(Verify::kAll, 0, 0);
  Parsed parsed = parse(parser, stream, 1000);
  CHECK_EQ(parsed.records.size(), 1u);
  CHECK(contains(parsed.error,
                 "record 1 at offset 36: the checksum of its data"));
  parsed = parse(parser, {}, 1000);
  CHECK_EQ(parsed.error, "");
  CHECK(parsed.records == std::vector<Bytes>{noise(40)});
  TfRecordParser trusting(Verify::kHeaders, 0, 0);
  CHECK_EQ(parse(trusting, stream, 1000).records.size(), 3u);
}

void test_damaged_length_ends_stream() {
  Bytes stream = tf_file_of({noise(20), noise(30)});
  stream[36 + 5] ^= std::byte{1};
  TfRecordParser parser(Verify::kNone, 0, 0);
  CHECK_EQ(parse(parser, stream, 1000).records.size(), 1u);
  const std::string error = parse(parser, {}, 1000).error;
  CHECK(contains(error, "record 1 at offset 36: the checksum of its length"));
  CHECK(contains(error, "damaged from here on"));
}

void test_truncated_stream_error_has_offset() {
  const Bytes stream = tf_file_of({noise(20), noise(30)});
  for (std::size_t size = 37; size < stream.size(); ++size) {
    TfRecordParser parser(Verify::kAll, 0, 0);
    const Parsed parsed = parse(parser, std::span(stream).first(size), 1000);
    CHECK_EQ(parsed.records.size(), 1u);
    CHECK(contains(parsed.error, "record 1 at offset 36: "));
    CHECK(contains(parsed.error, "still being written"));
  }
}

// Memory is allocated for received bytes, not for the length in the head.
void test_absurd_length_allocates_nothing() {
  Bytes stream = head_of(~std::uint64_t{0});
  append(stream, noise(1000));
  TfRecordParser parser(Verify::kAll, 0, 0);
  CHECK(contains(parse(parser, stream, 10).error, "the file ends 1000 bytes"));
  CHECK(parser.free_space().value().size() < std::size_t{1} << 20);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  for (const std::size_t step : {1u, 7u, 4096u, 1u << 20}) {
    test_stream_in_pieces_equals_whole(step);
  }
  test_parser_continues_at_offset();
  test_damaged_data_leave_next_record();
  test_damaged_length_ends_stream();
  test_truncated_stream_error_has_offset();
  test_absurd_length_allocates_nothing();
}
