// gristmill._core: the compiled core, with one bind function per concept.
#include "bindings/bind.hpp"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The compiled core of gristmill; not a public interface.";
  gristmill::bind::permute(m);
  gristmill::bind::plan(m);
  gristmill::bind::mixture(m);
  gristmill::bind::pack_plan(m);
  gristmill::bind::window_shuffle(m);
  gristmill::bind::pool(m);  // Before the functions that take a Pool.
  gristmill::bind::watch(m);
  gristmill::bind::collate(m);
  gristmill::bind::chunks(m);
  gristmill::bind::example(m);
  gristmill::bind::images(m);
  gristmill::bind::range_cache(m);    // Before its users.
  gristmill::bind::record_reader(m);  // Before its derived classes.
  gristmill::bind::record_file(m);
  gristmill::bind::codec(m);
  gristmill::bind::record_set(m);
  gristmill::bind::replace_file(m);
  gristmill::bind::file_lock(m);
  gristmill::bind::tf_record_file(m);
  gristmill::bind::tf_record_stream(m);
  gristmill::bind::tar_file(m);
  gristmill::bind::bag_file(m);
  gristmill::bind::span_file(m);  // Before the functions that return one.
  gristmill::bind::frame_stream(m);
  gristmill::bind::line_file(m);
  gristmill::bind::document_index(m);
  gristmill::bind::megatron_index(m);
  gristmill::bind::array_file(m);  // Before its users.
  gristmill::bind::token_rows(m);
  gristmill::bind::mds_index(m);
  gristmill::bind::blend(m);
  gristmill::bind::arena(m);
  gristmill::bind::supervise(m);
  gristmill::bind::scheduler(m);
  gristmill::bind::worker_end(m);
  gristmill::bind::pool_lane(m);
}
