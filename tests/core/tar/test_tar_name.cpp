#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/tar/tar_name.hpp"

namespace gristmill {
namespace {

// Returns "key|extension", or "none".
std::string cut(std::string_view name) {
  const auto field = tar_field(name);
  if (!field) return "none";
  return std::string(field->key) + "|" + std::string(field->extension);
}

void test_name_is_split_at_first_dot_of_file() {
  CHECK_EQ(cut("a.jpg"), "a|jpg");
  CHECK_EQ(cut("a.b/c.d.E"), "a.b/c|d.E");
  CHECK_EQ(cut("a."), "a|");
  CHECK_EQ(cut("a"), "none");
  CHECK_EQ(cut(""), "none");
  CHECK_EQ(cut("a.b/c"), "none");
}

void test_key_of_hidden_file_is_its_folder() {
  CHECK_EQ(cut(".a"), "none");
  CHECK_EQ(cut("q/.a"), "q/|a");
  CHECK_EQ(cut("q.r/.a"), "none");
  CHECK_EQ(cut("q.r/s/.a"), "q.r/s/|a");
  CHECK_EQ(cut("./.a"), "none");
  CHECK_EQ(cut("/.a"), "/|a");
}

void test_newline_limits_folders_with_dots() {
  CHECK_EQ(cut("a\n/b.c"), "a\n/b|c");
  CHECK_EQ(cut("a.b\n/c.d"), "none");
  CHECK_EQ(cut("a.b/c\n/d.e"), "a.b/c\n/d|e");
}

void test_metadata_members_are_skipped() {
  CHECK_EQ(cut("__a__/b.c"), "none");
  CHECK_EQ(cut("__a.b__"), "none");
  CHECK_EQ(cut("__.__\n"), "none");
  CHECK_EQ(cut("x/__a__/b.c"), "x/__a__/b|c");
  CHECK_EQ(cut("__a/b.c__"), "__a/b|c__");
  CHECK_EQ(cut("___.c"), "___|c");
}

}  // namespace
}  // namespace gristmill

int main() {
  using namespace gristmill;
  test_name_is_split_at_first_dot_of_file();
  test_key_of_hidden_file_is_its_folder();
  test_newline_limits_folders_with_dots();
  test_metadata_members_are_skipped();
}
