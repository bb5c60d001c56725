// A FooterParser makes a RecordIndex of the data of a footer chunk.
//
// The data come in pieces of any size, and are checked as they come: nothing
// that follows trusts the footer.
//
// Thread safety: none; a parser belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/array_record/codec.hpp"
#include "core/array_record/decoded_chunk.hpp"
#include "core/array_record/record_chunk.hpp"
#include "core/array_record/record_index.hpp"
#include "core/base/status.hpp"
#include "core/base/varint.hpp"

namespace gristmill {

class FooterParser {
 public:
  // `header` is the footer's, at `offset` in the file; the parser fills
  // `index`, which must outlive it.
  FooterParser(const ChunkHeader& header, std::uint64_t offset,
               RecordIndex& index);

  Status feed(std::span<const std::byte> piece);

  // No more data comes.
  Status finish();

 private:
  enum class Stage { kCodec, kSizes, kValuesSize, kValues };

  Status advance(bool& progress);
  Status begin_sizes(bool& progress);
  Status end_sizes(bool& progress);
  Status begin_values(bool& progress);
  Status take_values(std::span<const std::byte> values);
  Status take_records(std::span<const std::byte>& values);
  Status take_record(std::span<const std::byte> record);
  Status read_metadata(std::span<const std::byte> record);
  Status read_entry(std::span<const std::byte> record);

  const ChunkHeader header_;
  const std::uint64_t offset_;
  RecordIndex& index_;

  Stage stage_ = Stage::kCodec;
  std::vector<std::byte> held_;  // Data of a stage that needs more of them.
  Codec codec_ = Codec::kNone;
  std::uint64_t sizes_bytes_ = 0;
  std::vector<std::byte> stored_sizes_;
  Unpacked sizes_;
  ByteCursor next_size_{{}};
  std::unique_ptr<StreamDecoder> decoder_;

  std::vector<std::byte> window_;  // The start of a record not yet whole.
  std::uint64_t size_ = 0;         // Of the record that comes next.
  bool size_known_ = false;
  std::uint64_t taken_ = 0;  // Records so far.
  std::uint64_t num_chunks_ = 0;
  std::uint64_t num_records_ = 0;  // In the chunks listed so far.
  std::uint64_t last_offset_ = 0;
  std::uint64_t last_records_ = 0;
};

}  // namespace gristmill
