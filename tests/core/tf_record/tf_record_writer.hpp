// Writes small TFRecord files for tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/array_record/record_writer.hpp"
#include "core/tf_record/tf_record_frame.hpp"

namespace gristmill {

inline void append_u32(Bytes& to, std::uint32_t value) {
  std::byte raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  append(to, raw);
}

// Returns the head of a record with `length` bytes of data.
inline Bytes head_of(std::uint64_t length) {
  Bytes head;
  append_u64(head, length);
  append_u32(head, frame_checksum(head));
  return head;
}

inline Bytes frame_of(std::span<const std::byte> data) {
  Bytes frame = head_of(data.size());
  append(frame, data);
  append_u32(frame, frame_checksum(data));
  return frame;
}

inline Bytes tf_file_of(const std::vector<Bytes>& records) {
  Bytes file;
  for (const Bytes& record : records) append(file, frame_of(record));
  return file;
}

// Returns pseudorandom bytes that depend on `seed`.
inline Bytes noise(std::size_t size, std::uint32_t seed = 1) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

// Returns records of sizes around every limit of the readers.
inline std::vector<Bytes> tf_records() {
  std::vector<Bytes> records;
  for (const std::size_t size :
       {0u, 1u, 100u, 0u, 16367u, 16368u, 16369u, 5000u, 131056u, 131057u, 3u,
        262144u, 7u, 400000u, 127u, 128u, 17u}) {
    records.push_back(noise(size, static_cast<std::uint32_t>(size + 1)));
  }
  for (std::uint32_t i = 0; i < 200; ++i) records.push_back(noise(i * 7, i));
  return records;
}

inline bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "'" << part << "' is not in '" << text << "'" << std::endl;
  return false;
}

}  // namespace gristmill
