#include "providers/soft/regions.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/error.h"
#include "util/random.h"

namespace verbena::soft {

uint32_t RegionTable::insert(uint32_t scope, uint64_t addr, uint64_t length, uint32_t access_flags,
                             uint32_t arena, uint64_t arena_offset) {
  const std::lock_guard lock(mutex_);
  const uint32_t most = is_window_scope(scope) ? kMaxWindows : kMaxRegions;
  if (count_ >= most) {
    throw Error("limit_exceeded", "register memory",
                "the context has " + std::to_string(most) + " regions and windows already");
  }
  for (;;) {
    const auto key = random_value<uint32_t>();
    RegionEntry& entry = entries_[key & (kRegionSlots - 1)];
    if (key == 0 || entry.key.load(std::memory_order_relaxed) != 0) continue;
    entry.scope = scope;
    entry.addr = addr;
    entry.length = length;
    entry.access = access_flags;
    entry.arena = arena;
    entry.arena_offset = arena_offset;
    entry.key.store(key, std::memory_order_release);
    ++count_;
    return key;
  }
}

void RegionTable::remove(uint32_t key) {
  const std::lock_guard lock(mutex_);
  // Sequentially consistent: a reader that begins an access later must not see the key.
  entries_[key & (kRegionSlots - 1)].key.store(0, std::memory_order_seq_cst);
  --count_;
}

std::shared_ptr<RegionEntry> private_region_entries() {
  void* memory = mmap(nullptr, kRegionTableBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("invalid_argument", "open device", "no memory for the region table", errno);
  return {static_cast<RegionEntry*>(memory),
          [](RegionEntry* entries) { munmap(entries, kRegionTableBytes); }};
}

Status check_remote(const RegionEntry* table, uint32_t key, uint32_t pd, uint32_t qp_num, uint64_t addr,
                    uint64_t length, uint32_t needed_access, const RegionEntry** entry) {
  const RegionEntry* found = find_region(table, key);
  if (!found || !is_usable(*found, pd, qp_num) || !covers(*found, addr, length))
    return Status::rem_access_err;
  if ((found->access & needed_access) != needed_access) return Status::rem_access_err;
  *entry = found;
  return Status::success;
}

uint32_t remote_access_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::write:
    case Opcode::write_with_imm:
      return access::remote_write;
    case Opcode::read:
      return access::remote_read;
    case Opcode::compare_swap:
    case Opcode::fetch_add:
      return access::remote_atomic;
    case Opcode::send:
    case Opcode::send_with_imm:
      break;
  }
  return 0;
}

void check_access_flags(uint32_t flags) {
  if (flags & ~access::all) throw Error("invalid_argument", "register memory", "unknown access flag");
  if ((flags & (access::remote_write | access::remote_atomic)) && !(flags & access::local_write)) {
    throw Error("invalid_argument", "register memory", "REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE");
  }
}

void pin_memory(std::byte* addr, size_t length) {
  if (mlock(addr, length) == 0) return;
  const int error = errno;
  const ErrorCode code =
      error == ENOMEM || error == EPERM || error == EAGAIN ? ErrorCode("memlock") : "invalid_argument";
  throw Error(code, "register memory", "cannot lock " + std::to_string(length) + " bytes", error);
}

void unpin_memory(std::byte* addr, size_t length) { munlock(addr, length); }

SoftRegion::SoftRegion(RegionTable& table, std::shared_ptr<void> owner, uint32_t key, std::byte* addr,
                       size_t length, uint32_t access, bool pinned, std::function<void(bool)> quiesce)
    : table_(table),
      owner_(std::move(owner)),
      identity_(owner_.get()),
      key_(key),
      addr_(addr),
      length_(length),
      access_(access),
      pinned_(pinned),
      quiesce_(std::move(quiesce)) {}

void SoftRegion::close() {
  std::call_once(closed_, [this] {
    table_.remove(key_);
    const bool had_windows = windows_.close();
    quiesce_(had_windows || (access_ & access::remote) != 0);
    if (pinned_) unpin_memory(addr_, length_);
    quiesce_ = nullptr;
    owner_.reset();
  });
}

}  // namespace verbena::soft
