// Descriptors lend their numbers to each other, and nobody who reads notices.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/check.hpp"
#include "core/files/descriptor.hpp"

namespace gristmill {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder()
      : path(fs::temp_directory_path() / ("d" + std::to_string(getpid()))) {
    fs::create_directory(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(int i) const {
    const fs::path name = path / std::to_string(i);
    std::ofstream(name) << static_cast<char>('a' + i % 26);
    return name;
  }
  const fs::path path;
};

std::unique_ptr<Descriptor> open(const std::string& path) {
  auto fd = Descriptor::open(path);
  CHECK(fd.ok());
  struct stat status;
  CHECK_EQ(fstat(fd.value(), &status), 0);
  return std::make_unique<Descriptor>(path, fd.value(), status);
}

char read(const Descriptor& file) {
  auto use = file.use();
  CHECK(use.ok());
  char letter = 0;
  CHECK_EQ(pread(use.value().fd(), &letter, 1, 0), 1);
  return letter;
}

std::vector<std::unique_ptr<Descriptor>> open_many(const Folder& folder,
                                                   int count) {
  std::vector<std::unique_ptr<Descriptor>> files;
  for (int i = 0; i < count; ++i) files.push_back(open(folder.file(i)));
  return files;
}

void more_files_than_numbers_can_be_read() {
  Folder folder;
  Descriptor::set_limit(10);
  const auto files = open_many(folder, 60);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 60; ++i) {
      CHECK_EQ(read(*files[static_cast<std::size_t>(i)]), 'a' + i % 26);
      CHECK(Descriptor::open_count() <= 10);
    }
  }
}

void a_number_in_use_is_not_lent() {
  Folder folder;
  Descriptor::set_limit(2);
  const auto first = open(folder.file(0));
  auto use = first->use();
  CHECK(use.ok());
  const auto others = open_many(folder, 20);
  for (const auto& other : others) read(*other);
  char letter = 0;
  CHECK_EQ(pread(use.value().fd(), &letter, 1, 0), 1);
  CHECK_EQ(letter, 'a');
}

void another_file_in_its_place_is_noticed() {
  Folder folder;
  Descriptor::set_limit(1);
  const std::string path = folder.file(0);
  const auto first = open(path);
  const auto others = open_many(folder, 5);  // Writes to the same file: 'a'.
  for (const auto& other : others) read(*other);
  fs::rename(folder.file(30), path);
  const auto use = first->use();
  CHECK(!use.ok());
  CHECK_EQ(use.status().message(),
           "the file at this path was replaced after it was opened");
  fs::remove(path);
  CHECK_EQ(first->use().status().error_number(), ENOENT);
}

void numbers_are_taken_back_when_the_process_has_no_more() {
  Folder folder;
  Descriptor::set_limit(4096);
  struct rlimit before;
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit few = {32, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto files = open_many(folder, 25);
  const std::string path = folder.file(25);
  std::vector<int> own;  // The user's take all that is left.
  for (int fd = 0; (fd = dup(0)) >= 0;) own.push_back(fd);
  const auto more = open(path);
  CHECK_EQ(read(*more), 'z');
  for (const auto& file : files) read(*file);
  for (const int fd : own) close(fd);
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

void closed_files_leave_no_numbers() {
  Folder folder;
  const std::string path = folder.file(0);
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 50; ++i) read(*open(path));
  const int after = dup(0);
  close(after);
  CHECK_EQ(before, after);
  CHECK_EQ(Descriptor::open_count(), 0u);
}

void threads_share_few_numbers() {
  Folder folder;
  Descriptor::set_limit(3);
  const auto files = open_many(folder, 12);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&files, t] {
      for (std::size_t i = 0; i < 600; ++i) {
        const std::size_t file = (i * (t + 1)) % files.size();
        CHECK_EQ(read(*files[file]), static_cast<char>('a' + file));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

void a_file_written_anew_in_its_place_is_noticed() {
  Folder folder;
  Descriptor::set_limit(1);
  const std::string path = folder.file(0);
  const auto first = open(path);
  const auto other = open(folder.file(1));
  read(*other);
  // Until the clock of the file system has moved on.
  const auto before = fs::last_write_time(path);
  while (fs::last_write_time(path) == before) std::ofstream(path) << 'b';
  CHECK(!first->use().ok());
}

void a_child_lends_as_its_parent_does() {
  Folder folder;
  Descriptor::set_limit(10);
  const auto files = open_many(folder, 10);
  const pid_t child = fork();
  if (child == 0) {
    const auto more = open_many(folder, 20);
    for (const auto& file : more) read(*file);
    _exit(Descriptor::open_count() <= 10 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void a_child_reads_on() {
  Folder folder;
  Descriptor::set_limit(2);
  const auto files = open_many(folder, 6);
  const pid_t child = fork();
  if (child == 0) {
    for (const auto& file : files) read(*file);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace gristmill

int main() {
  gristmill::more_files_than_numbers_can_be_read();
  gristmill::a_number_in_use_is_not_lent();
  gristmill::another_file_in_its_place_is_noticed();
  gristmill::numbers_are_taken_back_when_the_process_has_no_more();
  gristmill::closed_files_leave_no_numbers();
  gristmill::threads_share_few_numbers();
  gristmill::a_file_written_anew_in_its_place_is_noticed();
  gristmill::a_child_lends_as_its_parent_does();
  gristmill::a_child_reads_on();
}
