// A SpanHandle gives Python a SpanFile.  The bindings of each kind of index
// open one.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "bindings/files/python_file.hpp"
#include "bindings/files/record_reader.hpp"
#include "core/files/span_file.hpp"

namespace gristmill::bind {

using SpanHandle = HandleOf<SpanFile>;

// Returns the reader of a file with the index that `make_index` returns for it.
// `noun` is the name of a record in errors.
template <class MakeIndex>
std::unique_ptr<SpanHandle> open_span_file(const py::object& object,
                                           const std::string& access,
                                           const char* noun,
                                           MakeIndex&& make_index) {
  using IndexPtr = std::shared_ptr<const SpanIndex>;
  File::Ptr file = open_file(object, access);
  IndexPtr index = checked_file(unlocked([&]() -> Result<IndexPtr> {
    auto made = make_index(*file);
    if (!made.ok()) return add_file_context(*file, made.status());
    return IndexPtr(std::move(made).value());
  }));
  return std::make_unique<SpanHandle>(std::make_shared<const SpanFile>(
      std::move(file), std::move(index), noun));
}

}  // namespace gristmill::bind
