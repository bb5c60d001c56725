#include "bindings/files/python_fetcher.hpp"

#include <cerrno>
#include <cstddef>
#include <vector>

#include "bindings/base/shared_object.hpp"
#include "bindings/files/python_file.hpp"
#include "bindings/with_python.hpp"
#include "core/base/byte_buffer.hpp"

namespace gristmill::bind {
namespace {

// Maximum memory that a thread keeps between reads.
constexpr std::size_t kMaxSpareBytes = std::size_t{4} << 20;

ByteBuffer& kept_buffer() {
  thread_local ByteBuffer buffer;
  return buffer;
}

std::span<const std::byte> span_of(PyObject* bytes) {
  return {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes)),
          static_cast<std::size_t>(PyBytes_GET_SIZE(bytes))};
}

}  // namespace

// A single call of fetch().
class PythonFetch {
 public:
  PythonFetch(std::span<const File::Range> ranges,
              const File::Fetcher::OnArrival& arrive)
      : ranges_(ranges), arrive_(arrive) {}

  // Delivers the ranges that are in the cache.  Returns false if no more ranges
  // are wanted.
  bool take_kept() {
    bool wanted = true;
    for (std::size_t k = 0; wanted && k < ranges_.size(); ++k) {
      const File::Range& range = ranges_[k];
      const auto& kept = file(k).kept_;
      Asked asked{k, range.begin, range.end};
      if (kept.cache) {
        const auto pages =
            RangeCache::pages_of(kept.origin, {range.begin, range.end});
        asked = {k, pages.begin, pages.end};
        if (read_kept(asked, kept)) {
          wanted = arrive_(k, std::span<const std::byte>(kept_buffer().all())
                                  .subspan(range.begin - pages.begin,
                                           range.end - range.begin));
          continue;
        }
      }
      asked_.push_back(asked);
    }
    kept_buffer().shrink(kMaxSpareBytes);
    return wanted;
  }

  void take_others() {
    if (asked_.empty()) return;
    bool wanted = with_python([&] { start(); });
    while (wanted && status_.ok() && left_ > 0) {
      wanted = with_python([&] { wait(); });
      for (std::size_t i = 0; wanted && i < came_.size(); ++i) {
        wanted = deliver(came_[i]);
      }
    }
    static_cast<void>(with_python([&] { finish(); }));
    for (std::size_t k = 0; wanted && !status_.ok() && k < asked_.size(); ++k) {
      if (!done_[k]) wanted = arrive_(asked_[k].number, status_);
    }
  }

 private:
  // A range to request from the file.  It is extended to whole pages if the
  // file has a cache.
  struct Asked {
    std::size_t number = 0;  // Index in ranges_.
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  // A range that arrived, or its error.
  struct Came {
    std::size_t number = 0;  // Index in asked_.
    PyObject* bytes = nullptr;
    Status status;
  };

  // Calls `fetch` of the first file's object and returns the pending object.
  // REQUIRES: the GIL is held.
  static PyObject* begin(std::span<const Asked> asked,
                         const std::vector<PyObject*>& objects) {
    PyObject* const list = PyList_New(static_cast<Py_ssize_t>(asked.size()));
    for (std::size_t k = 0; list != nullptr && k < asked.size(); ++k) {
      const auto at = static_cast<unsigned long long>(asked[k].begin);
      const auto size =
          static_cast<unsigned long long>(asked[k].end - asked[k].begin);
      PyObject* const item = Py_BuildValue("(OKK)", objects[k], at, size);
      if (item == nullptr) {
        Py_DECREF(list);
        return nullptr;
      }
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(k), item);
    }
    if (list == nullptr) return nullptr;
    PyObject* const pending =
        PyObject_CallMethod(objects.front(), "fetch", "(O)", list);
    Py_DECREF(list);
    return pending;
  }

  // Parses an item of the list that take() returned.
  // REQUIRES: the GIL is held.
  static Result<Came> parse(PyObject* item, std::span<const Asked> asked) {
    Came came;
    PyObject* answer = nullptr;
    Py_ssize_t number = 0;
    if (!PyTuple_Check(item)) {
      PyErr_Format(PyExc_TypeError,
                   "take() returned a list of %R, expected tuples",
                   Py_TYPE(item));
      return take_raised();
    }
    if (!PyArg_ParseTuple(item, "nO", &number, &answer)) return take_raised();
    came.number = static_cast<std::size_t>(number);
    if (came.number >= asked.size()) {
      PyErr_Format(PyExc_IndexError, "take() returned range %zd of %zu", number,
                   asked.size());
      return take_raised();
    }
    const std::uint64_t size =
        asked[came.number].end - asked[came.number].begin;
    if (PyExceptionInstance_Check(answer)) {
      Py_INCREF(answer);
      came.status = Status::raised(share(answer), "");
    } else if (!PyBytes_Check(answer) ||
               static_cast<std::uint64_t>(PyBytes_GET_SIZE(answer)) != size) {
      PyErr_Format(PyExc_ValueError, "take() returned %R for %llu bytes",
                   Py_TYPE(answer), static_cast<unsigned long long>(size));
      return take_raised();
    } else {
      came.bytes = answer;  // Borrowed from the list that take() returned.
    }
    return came;
  }

  [[nodiscard]] const PythonFile& file(std::size_t k) const {
    return static_cast<const PythonFile&>(*ranges_[k].file);
  }

  // Reads whole pages to the buffer.  Returns false if they are not in the
  // cache.
  static bool read_kept(const Asked& asked, const PythonFile::Kept& kept) {
    ByteBuffer& buffer = kept_buffer();
    return buffer.reset(asked.end - asked.begin) &&
           kept.cache->read(kept.origin, asked.begin, buffer.all());
  }

  // These methods need the GIL.

  void start() {
    std::vector<PyObject*> objects;
    for (const Asked& asked : asked_) {
      objects.push_back(object_of(file(asked.number).object_));
    }
    done_.resize(asked_.size());
    left_ = asked_.size();
    pending_ = begin(asked_, objects);
    if (pending_ == nullptr) status_ = take_raised();
  }

  void wait() {
    Py_CLEAR(list_);
    came_.clear();
    tell_problems();
    list_ = PyObject_CallMethod(pending_, "take", nullptr);
    if (list_ == nullptr) {
      status_ = take_raised();
    } else if (!PyList_Check(list_)) {
      PyErr_Format(PyExc_TypeError, "take() returned %R, expected a list",
                   Py_TYPE(list_));
      status_ = take_raised();
    } else {
      parse_list();
    }
  }

  void parse_list() {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list_); ++i) {
      auto came = parse(PyList_GET_ITEM(list_, i), asked_);
      if (!came.ok()) {
        status_ = came.status();
        return;
      }
      if (done_[came.value().number]) continue;
      came_.push_back(std::move(came).value());
      done_[came_.back().number] = true;
      --left_;
    }
  }

  void finish() {
    Py_CLEAR(list_);
    tell_problems();
    if (pending_ == nullptr) return;
    PyObject* const closed = PyObject_CallMethod(pending_, "close", nullptr);
    if (closed == nullptr) PyErr_Clear();
    Py_XDECREF(closed);
    Py_CLEAR(pending_);
  }

  void tell_problems() {
    if (problem_.ok()) return;
    PyObject* const told =
        PyObject_CallMethod(object_of(file(asked_.front().number).object_),
                            "cache_failed", "s", problem_.message().c_str());
    if (told == nullptr) PyErr_Clear();
    Py_XDECREF(told);
    problem_ = Status();
  }

  // Runs without the GIL.
  bool deliver(const Came& came) {
    const Asked& asked = asked_[came.number];
    if (came.bytes == nullptr) return arrive_(asked.number, came.status);
    const auto bytes = span_of(came.bytes);
    const auto& kept = file(asked.number).kept_;
    if (kept.cache) {
      kept.cache->write(kept.origin, asked.begin, bytes);
      if (problem_.ok()) problem_ = kept.cache->take_problem();
    }
    const File::Range& range = ranges_[asked.number];
    return arrive_(asked.number, bytes.subspan(range.begin - asked.begin,
                                               range.end - range.begin));
  }

  const std::span<const File::Range> ranges_;
  const File::Fetcher::OnArrival& arrive_;
  std::vector<Asked> asked_;
  std::vector<bool> done_;  // The ranges in asked_ that have arrived.
  std::size_t left_ = 0;
  PyObject* pending_ = nullptr;
  PyObject* list_ = nullptr;  // The last list from take().
  std::vector<Came> came_;
  Status status_;   // The error that ended the reads.
  Status problem_;  // Error of the cache, still to be reported.
};

void PythonFetcher::fetch(std::span<const File::Range> ranges,
                          const OnArrival& arrive) const {
  PythonFetch fetch(ranges, arrive);
  if (fetch.take_kept()) fetch.take_others();
}

}  // namespace gristmill::bind
