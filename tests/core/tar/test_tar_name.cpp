#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/tar/tar_name.hpp"

namespace gristmill {
namespace {

// The key and the extension, or nothing.
std::string cut(std::string_view name) {
  const auto field = tar_field(name);
  if (!field) return "none";
  return std::string(field->key) + "|" + std::string(field->extension);
}

void names_are_cut_at_the_first_dot_of_the_file() {
  CHECK_EQ(cut("a.jpg"), "a|jpg");
  CHECK_EQ(cut("a.b/c.d.E"), "a.b/c|d.E");
  CHECK_EQ(cut("a."), "a|");
  CHECK_EQ(cut("a"), "none");
  CHECK_EQ(cut(""), "none");
  CHECK_EQ(cut("a.b/c"), "none");
}

void hidden_files_belong_to_a_folder_without_a_dot() {
  CHECK_EQ(cut(".a"), "none");
  CHECK_EQ(cut("q/.a"), "q/|a");
  CHECK_EQ(cut("q.r/.a"), "none");
  CHECK_EQ(cut("q.r/s/.a"), "q.r/s/|a");
  CHECK_EQ(cut("./.a"), "none");
  CHECK_EQ(cut("/.a"), "/|a");
}

void a_line_ends_the_folders_that_may_have_dots() {
  CHECK_EQ(cut("a\n/b.c"), "a\n/b|c");
  CHECK_EQ(cut("a.b\n/c.d"), "none");
  CHECK_EQ(cut("a.b/c\n/d.e"), "a.b/c\n/d|e");
}

void what_is_about_the_file_is_left_out() {
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
  names_are_cut_at_the_first_dot_of_the_file();
  hidden_files_belong_to_a_folder_without_a_dot();
  a_line_ends_the_folders_that_may_have_dots();
  what_is_about_the_file_is_left_out();
}
