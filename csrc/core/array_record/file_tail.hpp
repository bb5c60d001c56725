// A FileTail reads the end of a file, parts of which are needed repeatedly.  It
// maps the file or reads as far ahead as File::hints() recommends.
//
// Thread safety: none; a tail belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/file.hpp"
#include "core/files/file_reader.hpp"

namespace gristmill {

class FileTail {
 public:
  // If the file has a high latency, each read after the first extends to at
  // least `min_read_bytes` bytes.
  FileTail(const File& file, std::uint64_t min_read_bytes)
      : file_(file), min_read_bytes_(min_read_bytes) {}

  // Returns the bytes [offset, offset + count), valid until the next call.
  // REQUIRES: the range lies in the file.
  Result<RawBytes> fetch(std::uint64_t offset, std::uint64_t count);

 private:
  Status read(std::uint64_t begin, std::uint64_t end);

  const File& file_;
  const std::uint64_t min_read_bytes_;
  std::vector<std::byte> bytes_;
  std::uint64_t begin_ = 0;  // File offset of bytes_.
};

}  // namespace gristmill
