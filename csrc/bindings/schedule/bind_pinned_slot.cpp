// Binds core/memory/pinned_slot.hpp.
#include <cstdint>
#include <memory>

#include "bindings/bind.hpp"
#include "core/memory/pinned_slot.hpp"
#include "core/schedule/scheduler.hpp"

namespace gristmill::bind {
namespace {

std::unique_ptr<PinnedSlot> pin_slot(std::uintptr_t address) {
  const Unlocked unlocked;
  ArenaSlot* const slot = Scheduler::slot_at(address);
  return slot != nullptr ? PinnedSlot::pin(slot) : nullptr;
}

}  // namespace

void pinned_slot(py::module_& m) {
  py::class_<PinnedSlot>(
      m, "PinnedSlot",
      "Keeps a slot's pages where they are for as long as it lives.")
      .def_property_readonly("address", &PinnedSlot::address)
      .def_property_readonly("nbytes", &PinnedSlot::bytes);
  m.def(
      "pin_slot", &pin_slot, "address"_a,
      "Pin the slot of a live scheduler that an address lies in; None where\n"
      "there is none or it is pinned already.  What lies there is kept alive\n"
      "by the caller.");
}

}  // namespace gristmill::bind
