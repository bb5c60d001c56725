#include <algorithm>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "core/tf_record/tf_record_parser.hpp"
#include "core/tf_record/tf_record_writer.hpp"

namespace gristmill {
namespace {

// What came out of a stream: records, and the first error.
struct Parsed {
  std::vector<Bytes> records;
  std::string error;
};

// Feeds a stream in pieces of `step` bytes at most.
Parsed parse(TfRecordParser& parser, std::span<const std::byte> stream,
             std::size_t step) {
  Parsed parsed;
  const auto failed = [&](const Status& status) {
    parsed.error = status.message();
    return parsed;
  };
  for (;;) {
    auto ready = parser.ready();
    if (!ready.ok()) return failed(ready.status());
    if (ready.value()) {
      auto data = parser.take();
      if (!data.ok()) return failed(data.status());
      parsed.records.emplace_back(data.value().begin(), data.value().end());
      continue;
    }
    if (stream.empty()) return failed(parser.finish());
    const auto room = parser.room().value();
    CHECK(!room.empty());
    const std::size_t count = std::min({room.size(), stream.size(), step});
    std::ranges::copy(stream.first(count), room.begin());
    parser.received(count);
    stream = stream.subspan(count);
  }
}

void cuts_streams_that_come_in_pieces(std::size_t step) {
  const auto records = tf_records();
  TfRecordParser parser(Verify::kAll, 0, 0);
  const Bytes stream = tf_file_of(records);
  const Parsed parsed = parse(parser, stream, step);
  CHECK_EQ(parsed.error, "");
  CHECK(parsed.records == records);
  CHECK_EQ(parser.record(), records.size());
  CHECK_EQ(parser.offset(), stream.size());
}

void goes_on_in_the_middle() {
  const Bytes stream = tf_file_of({noise(20), Bytes()});
  TfRecordParser parser(Verify::kAll, 7, 1000);
  const Parsed parsed = parse(parser, std::span(stream).first(50), 9);
  CHECK_EQ(parsed.records.size(), 1u);
  CHECK(contains(parsed.error, "record 8 at offset 1036: it has 0 bytes, but"));
}

void damaged_data_spare_the_next_record() {
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

void a_damaged_length_is_the_end() {
  Bytes stream = tf_file_of({noise(20), noise(30)});
  stream[36 + 5] ^= std::byte{1};
  TfRecordParser parser(Verify::kNone, 0, 0);
  CHECK_EQ(parse(parser, stream, 1000).records.size(), 1u);
  const std::string error = parse(parser, {}, 1000).error;
  CHECK(contains(error, "record 1 at offset 36: the checksum of its length"));
  CHECK(contains(error, "damaged from here on"));
}

void a_cut_stream_says_where() {
  const Bytes stream = tf_file_of({noise(20), noise(30)});
  for (std::size_t size = 37; size < stream.size(); ++size) {
    TfRecordParser parser(Verify::kAll, 0, 0);
    const Parsed parsed = parse(parser, std::span(stream).first(size), 1000);
    CHECK_EQ(parsed.records.size(), 1u);
    CHECK(contains(parsed.error, "record 1 at offset 36: "));
    CHECK(contains(parsed.error, "still being written"));
  }
}

// Memory follows what came, not what the head claims.
void absurd_lengths_cost_nothing() {
  Bytes stream = head_of(~std::uint64_t{0});
  append(stream, noise(1000));
  TfRecordParser parser(Verify::kAll, 0, 0);
  CHECK(contains(parse(parser, stream, 10).error, "the file ends 1000 bytes"));
  CHECK(parser.room().value().size() < std::size_t{1} << 20);
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  for (const std::size_t step : {1u, 7u, 4096u, 1u << 20}) {
    cuts_streams_that_come_in_pieces(step);
  }
  goes_on_in_the_middle();
  damaged_data_spare_the_next_record();
  a_damaged_length_is_the_end();
  a_cut_stream_says_where();
  absurd_lengths_cost_nothing();
}
