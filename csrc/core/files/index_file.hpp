// An IndexFile stores the offsets of the chunks of a data file, so that all
// processes can share them.
//
// It lies next to the data file or in a cache folder, and is mapped as it is.
// All numbers are little-endian.  A reader rejects an index with another
// format, and then rebuilds it:
//
//   offset  bytes
//        0      8  "GRISTMIX"
//        8      4  version of this format, 1
//       12      4  CRC-32C of everything that follows
//       16      8  size of the data file, in bytes
//       24      8  version of the data file: its modification time in ns since
//                  1970, or a hash of the version that a remote storage reports
//       32      8  hash of the footer, or the kind of a file without a footer
//       40      8  number of records
//       48      8  records per chunk, except in the last chunk
//       56      8  number of chunks
//       64      8  end of the last chunk
//       72      8  bytes of the writer's options
//       80     16  for each group of 64 chunks, and once for the end: offset of
//                  its first chunk (8 bytes), offset of its packed numbers (6),
//                  bytes per chunk offset (1), bytes per chunk size (1)
//        -      -  for each chunk: its offset from the first one of its group,
//                  and the total bytes of its records; 8 zero bytes at the end
//        -      -  the options
//
// The checksum does not protect against forgery.  The chunks of a forged index
// never extend beyond the data file, but may start at wrong offsets.  Readers
// therefore compare each chunk with its header.
//
// If another program truncates a mapped index, this process is killed: replace
// the file by renaming instead.
//
// Thread safety: pure functions.  Several processes may load and save the same
// index at the same time.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/status.hpp"
#include "core/files/file_stamp.hpp"
#include "core/files/packed_chunks.hpp"

namespace gristmill {

struct IndexFile {
  // Identifies the data file that an index describes.
  struct Origin {
    FileStamp stamp;
    std::uint64_t hash = 0;  // Of the footer, or the kind of file; see above.
    bool operator==(const Origin&) const = default;
  };

  // Returns the index at `path`.  Fails if it is damaged, has another format
  // version, or has another origin.
  static Result<IndexFile> load(const std::string& path, const Origin& origin);

  // Writes the index to a temporary file next to `index_path` and renames it,
  // so that other processes never see an incomplete file.  Creates the folder
  // if necessary.  Fails if the index takes more than a quarter of the free
  // space.
  Status save(const std::string& index_path) const;

  Origin origin;
  std::uint64_t num_records = 0;
  std::uint64_t group_size = 1;  // Records per chunk, except in the last one.
  std::string options;
  PackedChunks chunks;
  std::string path = {};  // The file that it was loaded from, or empty.
};

}  // namespace gristmill
