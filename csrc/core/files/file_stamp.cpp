#include "core/files/file_stamp.hpp"

#include "core/files/file_reader.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

Status check_stamp(const File& file, const std::optional<FileStamp>& expected) {
  if (!expected || FileStamp::of(file) == *expected) return {};
  return add_file_context(
      file,
      damaged("the file has changed since its records were counted: expected ",
              expected->size, " bytes, found ", file.size()));
}

}  // namespace gristmill
