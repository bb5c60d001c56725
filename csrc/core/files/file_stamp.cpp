#include "core/files/file_stamp.hpp"

#include "core/files/file_reader.hpp"
#include "core/files/verify.hpp"

namespace gristmill {

Status check_stamp(const File& file, const std::optional<FileStamp>& wanted) {
  if (!wanted || FileStamp::of(file) == *wanted) return {};
  return name_file(
      file,
      damaged("the file has changed since its records were counted: it had ",
              wanted->size, " bytes and has ", file.size()));
}

}  // namespace gristmill
