// A sidecar is a file that keeps the index of a TFRecord file.
//
// All numbers are little-endian.  A reader refuses what it does not know, and
// the sidecar is then made anew:
//
//   offset  bytes
//        0      8  "GRISTMTF"
//        8      4  version of this format, 1
//       12      4  CRC-32C of everything that follows
//       16      8  size of the TFRecord file, in bytes
//       24      8  its version: when it was last written to, in ns since 1970,
//                  or a hash of what a remote storage tells
//       32      8  how many records it has
//       40      -  the size of each record's data, as a varint
//
// A varint has 7 bits of the number in each byte, lowest first, and its highest
// bit says that another follows: records of 128 bytes to 16 KiB take two bytes.
//
// The checksum is one that anybody can compute.  An index that somebody made up
// never leads out of the file, but may say that records lie where none begin;
// TfRecordFile compares each with the length before its data.
//
// Thread safety: pure functions.  Processes may load and save one sidecar at
// the same time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.hpp"
#include "core/files/file_stamp.hpp"
#include "core/tf_record/tf_record_index.hpp"

namespace gristmill {

// The contents of the sidecar of a file that had this stamp.
[[nodiscard]] std::vector<std::byte> pack_sidecar(const TfRecordIndex& index,
                                                  const FileStamp& stamp);

// Returns the index in the contents of a sidecar, unless these are damaged, of
// another version of the format, or of a file with another stamp.
Result<TfRecordIndex> parse_sidecar(std::span<const std::byte> contents,
                                    const FileStamp& stamp);

// As parse_sidecar(), of a file.
Result<TfRecordIndex> load_sidecar(const std::string& path,
                                   const FileStamp& stamp);

// Writes a sidecar to a temporary name in the same folder and renames it, so
// that nobody sees half of it.
Status save_sidecar(const std::string& path, const TfRecordIndex& index,
                    const FileStamp& stamp);

}  // namespace gristmill
