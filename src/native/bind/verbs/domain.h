// Python's handle on a protection domain, and the scratch words that receive the old value of an atomic.
// Depends on the provider contract and bind/handle.h only.
#pragma once

#include <mutex>
#include <vector>

#include "bind/handle.h"
#include "verbs/provider.h"

namespace verbena::bind {

// A pool of 8-byte words of registered memory, each lent to one atomic. Grows by pages and never shrinks.
class ScratchWords : public std::enable_shared_from_this<ScratchWords> {
 public:
  // A lent word. The destructor returns it to the pool, so the Loan must live until its request has
  // completed.
  class Loan {
   public:
    Loan(std::shared_ptr<ScratchWords> pool, uint64_t* word, uint32_t lkey)
        : pool_(std::move(pool)), word_(word), lkey_(lkey) {}
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() { pool_->give_back(word_, lkey_); }

    Sge piece() const { return {reinterpret_cast<uint64_t>(word_), sizeof(uint64_t), lkey_}; }
    uint64_t value() const { return __atomic_load_n(word_, __ATOMIC_ACQUIRE); }

   private:
    const std::shared_ptr<ScratchWords> pool_;
    uint64_t* const word_;
    const uint32_t lkey_;
  };

  ScratchWords(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd)
      : context_(std::move(context)), pd_(std::move(pd)) {}

  std::shared_ptr<Loan> lend();
  void close();

 private:
  struct Cell {
    uint64_t* word;
    uint32_t lkey;
  };

  void add_page();
  void give_back(uint64_t* word, uint32_t lkey);

  static constexpr size_t kPageBytes = 4096;

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<ProtectionDomain> pd_;
  std::mutex mutex_;
  std::vector<Cell> free_;
  std::vector<std::shared_ptr<Memory>> pages_;
  std::vector<std::shared_ptr<MemoryRegion>> regions_;
  bool closed_ = false;
};

struct DomainHandle {
  DomainHandle(std::shared_ptr<Context> parent, std::shared_ptr<ProtectionDomain> domain)
      : context(parent),
        pd(domain, "protection domain"),
        scratch(std::make_shared<ScratchWords>(std::move(parent), std::move(domain))) {}
  ~DomainHandle() { close(); }

  void close() {
    if (!pd.start_close()) return;
    scratch->close();
    pd.core()->close();
  }

  Owned<Context> context;
  Handle<ProtectionDomain> pd;
  Owned<ScratchWords> scratch;
  // Peers of this domain share its memory, and no other.
  const std::shared_ptr<const MemoryGroup> group = std::make_shared<const MemoryGroup>();
};

}  // namespace verbena::bind
