#include "core/array_record/footer.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace gristmill {
namespace {

// No record of a footer comes near this.
constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 20;

// The signature of the file comes first.
constexpr std::uint64_t kFirstChunk = 64;

Status damaged(std::string what) {
  return Status(Code::kInvalidArgument, std::move(what));
}

std::string found(std::uint64_t value, std::uint64_t expected) {
  return std::to_string(value) + ", expected " + std::to_string(expected);
}

// One field of a protocol buffer: a number, or bytes.
struct Field {
  std::uint64_t tag = 0;  // The number of the field times 8, and wire type.
  std::uint64_t value = 0;
  std::span<const std::byte> bytes;
};

constexpr std::uint64_t varint_field(unsigned number) { return number * 8; }
constexpr std::uint64_t bytes_field(unsigned number) { return number * 8 + 2; }

bool read_field(ByteCursor& cursor, Field& field) {
  std::span<const std::byte> skipped;
  if (!cursor.varint(field.tag)) return false;
  switch (field.tag % 8) {
    case 0:
      return cursor.varint(field.value);
    case 1:
      return cursor.take(8, skipped);
    case 2:
      return cursor.varint(field.value) &&
             cursor.take(field.value, field.bytes);
    case 5:
      return cursor.take(4, skipped);
    default:
      return false;
  }
}

}  // namespace

FooterParser::FooterParser(const ChunkHeader& header, std::uint64_t offset,
                           RecordIndex& index)
    : header_(header), offset_(offset), index_(index) {}

Status FooterParser::feed(std::span<const std::byte> piece) {
  if (stage_ == Stage::kValues) {
    return decoder_->feed(piece,
                          [this](auto values) { return take_values(values); });
  }
  held_.insert(held_.end(), piece.begin(), piece.end());
  for (bool progress = true; progress && stage_ != Stage::kValues;) {
    progress = false;
    Status status = advance(progress);
    if (!status.ok()) return status;
  }
  if (stage_ != Stage::kValues) return {};
  const std::vector<std::byte> rest = std::exchange(held_, {});
  return decoder_->feed(rest,
                        [this](auto values) { return take_values(values); });
}

Status FooterParser::advance(bool& progress) {
  switch (stage_) {
    case Stage::kCodec:
      return begin_sizes(progress);
    case Stage::kSizes:
      return end_sizes(progress);
    case Stage::kValuesSize:
      return begin_values(progress);
    case Stage::kValues:
      return {};
  }
  return {};
}

Status FooterParser::begin_sizes(bool& progress) {
  ByteCursor cursor(held_);
  std::uint8_t byte = 0;
  if (!cursor.byte(byte)) return {};
  const auto codec = codec_of(byte);
  if (!codec) return damaged("its compression type is " + hex(byte));
  if (!cursor.varint(sizes_bytes_)) {
    return cursor.left() < kMaxVarint
               ? Status()
               : damaged("the length of its sizes is not readable");
  }
  if (sizes_bytes_ > header_.data_size) {
    return damaged("its sizes take " + std::to_string(sizes_bytes_) +
                   " bytes of " + std::to_string(header_.data_size));
  }
  codec_ = *codec;
  held_.erase(held_.begin(),
              held_.end() - static_cast<std::ptrdiff_t>(cursor.left()));
  stage_ = Stage::kSizes;
  progress = true;
  return {};
}

Status FooterParser::end_sizes(bool& progress) {
  if (held_.size() < sizes_bytes_) return {};
  const auto split = held_.begin() + static_cast<std::ptrdiff_t>(sizes_bytes_);
  std::vector<std::byte> rest(split, held_.end());
  held_.erase(split, held_.end());
  stored_sizes_ = std::exchange(held_, std::move(rest));
  Status status =
      unpack(codec_, stored_sizes_, header_.sizes.num_records * kMaxVarint,
             "sizes", sizes_);
  if (!status.ok()) return status;
  next_size_ = ByteCursor(sizes_.bytes);
  stage_ = Stage::kValuesSize;
  progress = true;
  return {};
}

Status FooterParser::begin_values(bool& progress) {
  std::uint64_t size = header_.sizes.decoded_size;
  if (codec_ != Codec::kNone) {
    ByteCursor cursor(held_);
    if (!cursor.varint(size)) {
      return cursor.left() < kMaxVarint
                 ? Status()
                 : damaged("the size of its values is not readable");
    }
    if (size != header_.sizes.decoded_size) {
      return damaged("the size of its values is " +
                     found(size, header_.sizes.decoded_size));
    }
    held_.erase(held_.begin(),
                held_.end() - static_cast<std::ptrdiff_t>(cursor.left()));
  }
  decoder_ = std::make_unique<StreamDecoder>(codec_, size);
  stage_ = Stage::kValues;
  progress = true;
  return {};
}

Status FooterParser::take_values(std::span<const std::byte> values) {
  if (window_.empty()) {
    Status status = take_records(values);
    if (!status.ok()) return status;
    window_.assign(values.begin(), values.end());
    return {};
  }
  window_.insert(window_.end(), values.begin(), values.end());
  std::span<const std::byte> rest(window_);
  Status status = take_records(rest);
  if (!status.ok()) return status;
  window_.erase(window_.begin(),
                window_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  return {};
}

// Takes whole records from the front of `values`.
Status FooterParser::take_records(std::span<const std::byte>& values) {
  for (;;) {
    if (!size_known_) {
      if (taken_ == header_.sizes.num_records) {
        return values.empty() ? Status()
                              : damaged("its records exceed their sizes");
      }
      if (!next_size_.varint(size_) || size_ > kMaxRecordBytes) {
        return damaged("the size of its record " + std::to_string(taken_) +
                       " is missing or too large");
      }
      size_known_ = true;
    }
    if (values.size() < size_) return {};
    Status status = take_record(values.first(size_));
    if (!status.ok()) {
      return damaged("its record " + std::to_string(taken_) + ": " +
                     status.message());
    }
    values = values.subspan(size_);
    size_known_ = false;
    ++taken_;
  }
}

Status FooterParser::take_record(std::span<const std::byte> record) {
  return taken_ == 0 ? read_metadata(record) : read_entry(record);
}

Status FooterParser::read_metadata(std::span<const std::byte> record) {
  ByteCursor outer(record);
  std::span<const std::byte> inner;
  Field field;
  while (outer.left() > 0) {
    if (!read_field(outer, field)) return damaged("it is not readable");
    if (field.tag == bytes_field(1)) inner = field.bytes;
  }
  ByteCursor cursor(inner);
  std::uint64_t version = 0;
  while (cursor.left() > 0) {
    if (!read_field(cursor, field)) return damaged("it is not readable");
    if (field.tag == varint_field(1)) version = field.value;
    if (field.tag == varint_field(2)) num_chunks_ = field.value;
    if (field.tag == varint_field(3)) index_.num_records_ = field.value;
    if (field.tag == bytes_field(4)) {
      index_.options_.assign(reinterpret_cast<const char*>(field.bytes.data()),
                             field.bytes.size());
    }
  }
  if (version != 1) return damaged("the version is " + found(version, 1));
  if (num_chunks_ + 1 != header_.sizes.num_records) {
    return damaged("the number of chunks is " +
                   found(num_chunks_, header_.sizes.num_records - 1));
  }
  index_.chunks_.reserve(num_chunks_);
  return {};
}

Status FooterParser::read_entry(std::span<const std::byte> record) {
  ByteCursor cursor(record);
  Field field;
  std::uint64_t offset = 0;
  std::uint64_t decoded_size = 0;
  std::uint64_t records = 0;
  while (cursor.left() > 0) {
    if (!read_field(cursor, field)) return damaged("it is not readable");
    if (field.tag == varint_field(1)) offset = field.value;
    if (field.tag == varint_field(2)) decoded_size = field.value;
    if (field.tag == varint_field(3)) records = field.value;
  }
  const std::uint64_t least = taken_ == 1 ? kFirstChunk : last_offset_ + 1;
  if (offset < least || offset >= offset_) {
    return damaged("its chunk is at offset " + std::to_string(offset) +
                   ", expected one from " + std::to_string(least) + " to " +
                   std::to_string(offset_ - 1));
  }
  if (decoded_size > kMaxDecodedBytes) {
    return damaged("its chunk has " + std::to_string(decoded_size) +
                   " bytes, expected at most " +
                   std::to_string(kMaxDecodedBytes));
  }
  if (taken_ == 1) {
    index_.group_size_ = records;
  } else if (last_records_ != index_.group_size_) {
    return damaged("the chunk before has " +
                   found(last_records_, index_.group_size_) + " records");
  }
  if (records == 0 || records > index_.group_size_ || records > offset_) {
    return damaged("its chunk has " + std::to_string(records) +
                   " records, expected 1 to " +
                   std::to_string(index_.group_size_));
  }
  last_offset_ = offset;
  last_records_ = records;
  num_records_ += records;
  index_.chunks_.add(offset, decoded_size);
  return {};
}

Status FooterParser::finish() {
  if (stage_ != Stage::kValues) return damaged("its data end too early");
  Status status =
      decoder_->finish([this](auto values) { return take_values(values); });
  if (!status.ok()) return status;
  if (taken_ == 0 || taken_ != header_.sizes.num_records) {
    return damaged("the number of its records is " +
                   found(taken_, header_.sizes.num_records));
  }
  if (next_size_.left() > 0) return damaged("it has sizes of no record");
  if (num_records_ != index_.num_records_) {
    return damaged("the records of its chunks add up to " +
                   found(num_records_, index_.num_records_));
  }
  index_.chunks_.finish(offset_);
  return {};
}

}  // namespace gristmill
