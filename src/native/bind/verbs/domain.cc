#include "bind/verbs/domain.h"

namespace verbena::bind {

std::shared_ptr<ScratchWords::Loan> ScratchWords::lend() {
  Cell cell;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) throw Error("closed", "atomic operation", "the protection domain is closed");
    if (free_.empty()) add_page();
    cell = free_.back();
    free_.pop_back();
  }
  return std::make_shared<Loan>(shared_from_this(), cell.word, cell.lkey);
}

void ScratchWords::add_page() {
  pages_.push_back(context_->allocate(kPageBytes, {}));
  std::byte* const begin = pages_.back()->data();
  regions_.push_back(pd_->register_memory(begin, kPageBytes, access::local_write, false));
  auto* const words = reinterpret_cast<uint64_t*>(begin);
  for (size_t i = kPageBytes / sizeof(uint64_t); i-- > 0;)
    free_.push_back({words + i, regions_.back()->lkey()});
}

void ScratchWords::give_back(uint64_t* word, uint32_t lkey) {
  const std::lock_guard lock(mutex_);
  free_.push_back({word, lkey});
}

void ScratchWords::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& region : regions_) region->close();
}

}  // namespace verbena::bind
