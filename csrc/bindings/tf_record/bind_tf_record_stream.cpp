// Binds core/tf_record/tf_record_parser.hpp.  It reads from a Python object and
// returns records as bytes.
#include "bindings/files/record_reader.hpp"
#include "core/tf_record/tf_record_frame.hpp"
#include "core/tf_record/tf_record_parser.hpp"

namespace gristmill::bind {
namespace {

// Checking a record of more bytes than this takes longer than releasing the
// GIL.
constexpr std::size_t kLargeRecordBytes = std::size_t{64} << 10;

class Stream {
 public:
  Stream(py::object source, std::string name, const std::string& verify,
         std::uint64_t record, std::uint64_t offset)
      : source_(std::move(source)),
        name_(std::move(name)),
        parser_(verify_of(verify), record, offset) {}

  [[nodiscard]] std::uint64_t record() const { return parser_.record(); }
  [[nodiscard]] std::uint64_t offset() const { return parser_.offset(); }

  py::bytes next() {
    const ExclusiveCall exclusive(*this);
    while (!checked_named(parser_.has_complete_record())) {
      if (receive() > 0) continue;
      check_named(parser_.check_end());
      throw py::stop_iteration();
    }
    const auto data = checked_named(
        unlocked_from(kLargeRecordBytes, parser_.next_frame_bytes(),
                      [&] { return parser_.take_record(); }));
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }

 private:
  // Keeps out other threads, which would move the buffer.  Reading and checking
  // release the GIL.
  class ExclusiveCall {
   public:
    explicit ExclusiveCall(Stream& stream) : stream_(stream) {
      if (stream_.is_called_) {
        throw py::value_error(
            stream_.name_ +
            ": next() was called during another call of next()");
      }
      stream_.is_called_ = true;
    }
    ~ExclusiveCall() { stream_.is_called_ = false; }
    ExclusiveCall(const ExclusiveCall&) = delete;
    ExclusiveCall& operator=(const ExclusiveCall&) = delete;

   private:
    Stream& stream_;
  };

  // A memoryview that the source may fill.  The destructor releases it, so that
  // the source cannot keep using the memory.
  class LentMemory {
   public:
    explicit LentMemory(std::span<std::byte> free_space)
        : view_(py::memoryview::from_memory(
              free_space.data(), static_cast<py::ssize_t>(free_space.size()))) {
    }
    ~LentMemory() {
      const py::error_scope saved_error;
      const py::object released = py::reinterpret_steal<py::object>(
          PyObject_CallMethod(view_.ptr(), "release", nullptr));
      if (!released) PyErr_WriteUnraisable(view_.ptr());
    }
    LentMemory(const LentMemory&) = delete;
    LentMemory& operator=(const LentMemory&) = delete;
    [[nodiscard]] const py::memoryview& view() const { return view_; }

   private:
    const py::memoryview view_;
  };

  // Reads bytes from the source to the parser.  Returns their number, which is
  // 0 at the end of the stream.
  std::size_t receive() {
    const auto free_space = checked_named(parser_.free_space());
    const LentMemory lent(free_space);
    const auto count =
        py::cast<std::size_t>(source_.attr("readinto")(lent.view()));
    if (count > free_space.size()) {
      throw py::value_error(concat(name_, ": readinto() must return at most ",
                                   free_space.size(), ", got ", count));
    }
    parser_.add_received(count);
    return count;
  }

  void check_named(const Status& status) const {
    if (status.ok()) return;
    check_file(Status(status.code(), name_ + ": " + status.message()));
  }
  template <class T>
  T checked_named(Result<T> result) const {
    check_named(result.status());
    return std::move(result).value();
  }

  const py::object source_;
  const std::string name_;
  TfRecordParser parser_;
  bool is_called_ = false;  // Guarded by the GIL.
};

py::str compression(const py::bytes& begin) {
  const std::string_view bytes = begin;
  return py::str(std::string(
      frame_compression(std::as_bytes(std::span(bytes.data(), bytes.size())))));
}

}  // namespace

void tf_record_stream(py::module_& m) {
  py::class_<Stream>(m, "TfRecordStream",
                     "The records in a stream of bytes, in order.",
                     py::is_final())
      .def(py::init<py::object, std::string, const std::string&, std::uint64_t,
                    std::uint64_t>(),
           "source"_a, "name"_a, "verify"_a, "record"_a, "offset"_a)
      .def("__iter__", [](py::object self) { return self; })
      .def(
          "__next__", &Stream::next,
          "Return the next record.  If only the data of a record are damaged,\n"
          "the call after its CorruptRecord returns the record after it.")
      .def_property_readonly("record", &Stream::record)
      .def_property_readonly("offset", &Stream::offset);
  m.def("tf_record_compression", &compression, "begin"_a);
}

}  // namespace gristmill::bind
