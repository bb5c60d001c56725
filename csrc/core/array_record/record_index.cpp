#include "core/array_record/record_index.hpp"

#include <chrono>
#include <string>
#include <utility>

#include "core/array_record/fields.hpp"
#include "core/array_record/footer.hpp"
#include "core/base/varint.hpp"
#include "core/files/index_file.hpp"
#include "core/files/shared_index.hpp"
#include "core/files/verify.hpp"

namespace gristmill {
namespace {

// Bytes to read at once from the footer of a file with a high latency: for the
// whole footer, and for its first record only.
constexpr std::uint64_t kFooterReadBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kFrontReadBytes = std::uint64_t{256} << 10;

// The minimum number of chunks for saving an index.  Parsing a footer with this
// many chunks takes about 0.3 ms; loading a saved index is faster.
constexpr std::uint64_t kMinSavedChunks = 1 << 14;

// Building the index of a million chunks takes 25 ms.
constexpr std::chrono::milliseconds kMaxIndexWait{100};

// The footer's record of a chunk.
struct Entry {
  std::uint64_t offset = 0;
  std::uint64_t decoded_size = 0;
  std::uint64_t records = 0;
};

// Reads three fields in this order, each after its tag (that of a varint with
// field number 1, 2 or 3).  Returns false if the record has any other form.
bool read_entry_in_order(std::span<const std::byte> record, Entry& entry) {
  ByteCursor cursor(record);
  std::uint8_t tag = 0;
  return cursor.byte(tag) && tag == 0x08 && cursor.varint(entry.offset) &&
         cursor.byte(tag) && tag == 0x10 && cursor.varint(entry.decoded_size) &&
         cursor.byte(tag) && tag == 0x18 && cursor.varint(entry.records) &&
         cursor.left() == 0;
}

bool read_entry(std::span<const std::byte> record, Entry& entry) {
  if (read_entry_in_order(record, entry)) return true;
  Fields fields;
  if (!fields.read(record)) return false;
  entry = {fields.numbers[1], fields.numbers[2], fields.numbers[3]};
  return true;
}

// Builds an index from the records of a footer.  Checks every number in them.
class IndexBuilder {
 public:
  explicit IndexBuilder(const Footer& footer) : footer_(footer) {}

  Result<RecordIndex> build(const SimpleRecords& records) && {
    ByteCursor sizes(records.sizes.bytes);
    ByteCursor values(records.values.bytes);
    for (std::uint64_t i = 0; i <= footer_.num_chunks(); ++i) {
      std::uint64_t size = 0;
      std::span<const std::byte> record;
      if (!sizes.varint(size) || !values.take(size, record)) {
        return damaged("the size of its record ", i,
                       " is missing or too large");
      }
      if (i == 0) {
        const auto counts = TRY(footer_.parse_counts(record));
        index_.num_records = counts.num_records;
        index_.options = counts.options;
      } else if (Entry entry; !read_entry(record, entry)) {
        return damaged("its record ", i, ": it is not readable");
      } else if (!add(entry)) {
        return damaged("its record ", i, ": ", rejection_reason(entry));
      }
    }
    if (values.left() > 0) return damaged("its records exceed their sizes");
    if (sizes.left() > 0) return damaged("it has more sizes than records");
    if (total_records_ != index_.num_records) {
      return damaged("the records of its chunks add up to ",
                     found(total_records_, index_.num_records));
    }
    index_.chunks.finish(footer_.offset());
    return std::move(index_);
  }

 private:
  // Adds a chunk.  Returns false if its entry is invalid.
  bool add(const Entry& entry) {
    if (index_.num_chunks() == 0) index_.group_size = entry.records;
    if (entry.offset < min_offset_ || entry.offset >= footer_.offset() ||
        entry.decoded_size > kMaxDecodedBytes || entry.records == 0 ||
        entry.records > footer_.offset() || entry.records > index_.group_size ||
        (previous_records_ != index_.group_size && index_.num_chunks() > 0)) {
      return false;
    }
    min_offset_ = entry.offset + 1;
    previous_records_ = entry.records;
    total_records_ += entry.records;
    index_.chunks.add(entry.offset, entry.decoded_size);
    return true;
  }

  // Returns the reason why add() rejected an entry.
  [[nodiscard]] std::string rejection_reason(const Entry& entry) const {
    if (entry.offset < min_offset_ || entry.offset >= footer_.offset()) {
      return concat("its chunk is at offset ", entry.offset,
                    ", expected one from ", min_offset_, " to ",
                    footer_.offset() - 1);
    }
    if (entry.decoded_size > kMaxDecodedBytes) {
      return concat("its chunk has ", entry.decoded_size,
                    " bytes, expected at most ", kMaxDecodedBytes);
    }
    // All chunks except the last have as many records as the first.
    const std::uint64_t group = index_.group_size;
    if (index_.num_chunks() > 0 && previous_records_ != group) {
      return concat("the chunk before has ", found(previous_records_, group),
                    " records");
    }
    return concat("its chunk has ", entry.records, " records, expected 1 to ",
                  group);
  }

  const Footer& footer_;
  RecordIndex index_;
  // The lowest valid offset of the next chunk.
  std::uint64_t min_offset_ = kFirstChunk;
  std::uint64_t previous_records_ = 0;  // Records of the last chunk added.
  std::uint64_t total_records_ = 0;     // Records of all chunks added so far.
};

Result<RecordIndex> read_entries(Footer& footer) {
  ByteBuffer data;
  SimpleRecords records;
  TRY(footer.read(data, records));
  return IndexBuilder(footer).build(records);
}

Result<RecordIndex> build_index(Footer& footer) {
  auto index = read_entries(footer);
  if (!index.ok()) return footer.add_footer_context(index.status());
  return index;
}

Result<RecordIndex> load_or_build(const File& file, Footer& footer,
                                  std::span<const std::string> index_paths) {
  const IndexFile::Origin origin{FileStamp::of(file), footer.hash()};
  const auto build = [&]() -> Result<IndexFile> {
    RecordIndex index = TRY(build_index(footer));
    return IndexFile{origin, index.num_records, index.group_size,
                     std::move(index.options), std::move(index.chunks)};
  };
  IndexFile index =
      TRY(load_or_build_index(file, origin, index_paths, kMaxIndexWait, build));
  return RecordIndex{index.num_records, index.group_size,
                     std::move(index.chunks), std::move(index.options)};
}

}  // namespace

Result<RecordIndex> RecordIndex::read(
    const File& file, Verify verify, std::span<const std::string> index_paths) {
  const bool may_save = !index_paths.empty();
  Footer footer = TRY(Footer::find(
      file, verify, may_save ? kFrontReadBytes : kFooterReadBytes));
  if (may_save && footer.num_chunks() >= kMinSavedChunks) {
    return load_or_build(file, footer, index_paths);
  }
  return build_index(footer);
}

Result<RecordCount> RecordCount::read(const File& file, Verify verify) {
  Footer footer = TRY(Footer::find(file, verify, kFrontReadBytes));
  auto counts = footer.read_front();
  if (counts.ok()) {
    return RecordCount{counts.value().num_records, counts.value().num_chunks,
                       FileStamp::of(file)};
  }
  const auto index = TRY(RecordIndex::read(file, verify));
  return RecordCount{index.num_records, index.num_chunks(),
                     FileStamp::of(file)};
}

}  // namespace gristmill
