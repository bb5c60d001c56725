// Writes small ArrayRecord files for tests: uncompressed, simple chunks.
//
// A test can damage any part of a file and correct the hashes around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/array_record/record_chunk.hpp"
#include "core/base/highway_hash.hpp"
#include "core/check.hpp"

namespace gristmill {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(data, data + text.size());
}

inline void append(Bytes& to, std::span<const std::byte> from) {
  to.insert(to.end(), from.begin(), from.end());
}

inline void append_u64(Bytes& to, std::uint64_t value) {
  std::byte raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  append(to, raw);
}

inline void append_varint(Bytes& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    to.push_back(static_cast<std::byte>((value & 0x7f) | 0x80));
  }
  to.push_back(static_cast<std::byte>(value));
}

// Returns the data of a simple, uncompressed chunk.
inline Bytes simple_data(const std::vector<Bytes>& records) {
  Bytes sizes;
  Bytes values;
  for (const Bytes& record : records) {
    append_varint(sizes, record.size());
    append(values, record);
  }
  Bytes data = {std::byte{0}};
  append_varint(data, sizes.size());
  append(data, sizes);
  append(data, values);
  return data;
}

class RecordWriter {
 public:
  RecordWriter() { chunk('s', {}, 0, 0); }

  // Writes a chunk and returns its offset.
  std::uint64_t chunk(char type, const Bytes& data, std::uint64_t num_records,
                      std::uint64_t decoded_size) {
    Bytes header;
    append_u64(header, data.size());
    append_u64(header, HighwayHash::of(kRiegeliKey, data));
    append_u64(header, num_records << 8 | static_cast<unsigned char>(type));
    append_u64(header, decoded_size);
    Bytes all;
    append_u64(all, HighwayHash::of(kRiegeliKey, header));
    append(all, header);
    append(all, data);
    const std::uint64_t begin = file_.size();
    const std::uint64_t end = skip_bytes(begin, all.size());
    for (const std::byte byte : all) {
      if (file_.size() % kBlockBytes == 0) block_header(begin, end);
      file_.push_back(byte);
    }
    return begin;
  }

  std::uint64_t records(const std::vector<Bytes>& records) {
    std::uint64_t size = 0;
    for (const Bytes& record : records) size += record.size();
    const std::uint64_t begin =
        chunk('r', simple_data(records), records.size(), size);
    Bytes entry;
    field(entry, 1, begin);
    field(entry, 2, size);
    field(entry, 3, records.size());
    footer_.push_back(entry);
    num_records_ += records.size();
    return begin;
  }

  // Ends the file with a footer and a postscript.
  Bytes finish() {
    Bytes metadata;
    field(metadata, 1, 1);
    field(metadata, 2, footer_.size());
    field(metadata, 3, num_records_);
    Bytes outer = {std::byte{0x0a}};
    append_varint(outer, metadata.size());
    append(outer, metadata);
    footer_.insert(footer_.begin(), outer);
    footer_at = end_with(footer_);
    while (file_.size() % kBlockBytes != 0) file_.push_back(std::byte{0});
    Bytes postscript;
    field(postscript, 1, footer_at);
    field(postscript, 2, 0x71930e704fdae05e);
    end_with({postscript, postscript, postscript});
    while (file_.size() % kBlockBytes != 0) file_.push_back(std::byte{0});
    return file_;
  }

  std::vector<Bytes> footer_;  // The entries, which tests may change.
  std::uint64_t footer_at = 0;

 private:
  static void field(Bytes& to, unsigned number, std::uint64_t value) {
    append_varint(to, number * 8);
    append_varint(to, value);
  }

  std::uint64_t end_with(const std::vector<Bytes>& records) {
    std::uint64_t size = 0;
    for (const Bytes& record : records) size += record.size();
    return chunk('r', simple_data(records), records.size(), size);
  }

  void block_header(std::uint64_t begin, std::uint64_t end) {
    Bytes body;
    append_u64(body, file_.size() - begin);
    append_u64(body, end - file_.size());
    append_u64(file_, HighwayHash::of(kRiegeliKey, body));
    append(file_, body);
  }

  Bytes file_;
  std::uint64_t num_records_ = 0;
};

// A file that the destructor removes.
class TemporaryFile {
 public:
  explicit TemporaryFile(const Bytes& contents) {
    char name[] = "/tmp/gristmill_records_XXXXXX";
    const int fd = mkstemp(name);
    CHECK(fd >= 0);
    ::close(fd);
    path_ = name;
    write(contents);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const Bytes& contents) const {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(contents.data()),
              static_cast<std::streamsize>(contents.size()));
    CHECK(out.good());
  }

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gristmill
