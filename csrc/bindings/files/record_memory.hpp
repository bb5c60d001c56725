// Python objects that hold records: bytes, arrays, or views of mapped files.
//
// Thread safety: all functions require the GIL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bindings/bind.hpp"
#include "core/files/record_reader.hpp"

namespace gristmill::bind {

// A Python object, and the memory in it for each record.
struct Memory {
  py::object object;
  std::vector<std::span<std::byte>> places;
};

// The Python objects in which records are returned.
struct Form {
  bool packed = false;
  py::object dtype;  // If not None, records are arrays of it.
};

// Creates the objects for records of these sizes, in bytes.
Memory new_memory(std::span<const std::int64_t> sizes, const Form& form);

// The same for `requests`.  Fails if the size of an array, by slot, is not a
// multiple of its items.
Memory new_memory(const RecordReader& reader,
                  std::span<const RecordReader::Request> requests,
                  std::span<const std::int64_t> sizes, const Form& form);

// Returns a list of arrays that are views of mapped files.
// REQUIRES: reader.has_views().
Memory view_records(const RecordReader& reader,
                    std::span<const RecordReader::Request> requests,
                    const py::dtype& dtype);

}  // namespace gristmill::bind
