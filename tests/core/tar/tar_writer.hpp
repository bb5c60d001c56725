// Writes small tar files for tests.
#pragma once

#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/array_record/record_writer.hpp"
#include "core/tar/tar_walk.hpp"

namespace gristmill {

// Sets the checksum of a header.
inline void sum_up(std::byte* head) {
  std::memset(head + 148, ' ', 8);
  unsigned sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    sum += std::to_integer<unsigned>(head[i]);
  }
  std::snprintf(reinterpret_cast<char*>(head) + 148, 8, "%06o", sum);
}

// Returns a ustar header and the data, padded to whole blocks.
inline Bytes tar_member(std::string_view name, std::string_view data,
                        char type = '0') {
  Bytes member(kTarBlock);
  auto* head = reinterpret_cast<char*>(member.data());
  std::memcpy(head, name.data(), name.size());
  std::snprintf(head + 124, 12, "%011zo", data.size());
  head[156] = type;
  sum_up(member.data());
  append(member, bytes_of(data));
  member.resize((member.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  return member;
}

inline Bytes tar_of(const std::vector<Bytes>& members) {
  Bytes file;
  for (const Bytes& member : members) append(file, member);
  file.resize(file.size() + 2 * kTarBlock);
  return file;
}

}  // namespace gristmill
