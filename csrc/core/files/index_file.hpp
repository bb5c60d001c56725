// An IndexFile keeps where the chunks of a data file lie, for all processes.
//
// It lies beside the data file or in a folder of caches, and is mapped as it
// is.  All numbers are little-endian.  A reader refuses what it does not know,
// and the index is then made anew:
//
//   offset  bytes
//        0      8  "GRISTMIX"
//        8      4  version of this format, 1
//       12      4  CRC-32C of everything that follows
//       16      8  size of the data file, in bytes
//       24      8  its version: when it was last written to, in ns since 1970,
//                  or a hash of what a remote storage tells
//       32      8  a hash of what the data file says of itself
//       40      8  how many records it has
//       48      8  how many of them are in each chunk but the last
//       56      8  how many chunks there are
//       64      8  where the last one ends
//       72      8  bytes of the writer's options
//       80     16  for each 64 chunks, and once more for the end: where they
//                  begin (8 bytes), where their numbers are among the packed
//                  ones (6), bytes of an offset (1), bytes of a size (1)
//        -      -  for each chunk its offset from the first of its 64, and the
//                  bytes of its records together; 8 bytes of 0 after the last
//        -      -  the options
//
// The checksum is one that anybody can compute.  An index that somebody made up
// never leads out of the data file, but may say that chunks lie where none
// begin; each is compared with its header when it is read.
//
// A mapped index that another program makes shorter ends this process: replace
// files by renaming.
//
// Thread safety: pure functions.  Processes may load and save one index at the
// same time.
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
    std::uint64_t hash = 0;
    bool operator==(const Origin&) const = default;
  };

  // Returns the index at `path`.  Fails if it is damaged, has another format
  // version, or has another origin.
  static Result<IndexFile> load(const std::string& path, const Origin& origin);

  // Writes the index to a temporary file in the same folder and renames it, so
  // that other processes never see an incomplete file.  Creates the folder if
  // necessary.  Fails if the index takes more than a quarter of the free space.
  Status save(const std::string& to) const;

  Origin origin;
  std::uint64_t num_records = 0;
  std::uint64_t group_size = 1;
  std::string options;
  PackedChunks chunks;
  std::string path = {};  // The file that it was loaded from, or empty.
};

}  // namespace gristmill
