// What ends when the kernel removes a device: a device can return only after every process has closed it.
// Depends on the standard library and util/ only.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "util/error.h"

namespace verbena::ibv {

// An object that holds a part of the device. on_removal() gives it back, as far as possible now; it is
// repeated until nothing is left. Afterwards the object does nothing.
class Removable {
 public:
  virtual ~Removable() = default;
  virtual void on_removal() = 0;
};

// The order in which objects are given back.
enum class RemovalRank : uint8_t { connection, queue_pair, queue, region, domain };
constexpr size_t kRemovalRanks = 5;

// Counts what uses an open device. After refuse(), nothing new may begin.
class DeviceUses {
 public:
  bool begin() {
    count_.fetch_add(1);
    if (!refused_.load()) return true;
    end();
    return false;
  }
  void end() { count_.fetch_sub(1); }
  void refuse() { refused_.store(true); }
  bool is_refusing() const { return refused_.load(std::memory_order_relaxed); }
  uint32_t count() const { return count_.load(); }

  void track(RemovalRank rank, const std::shared_ptr<Removable>& object) {
    const std::lock_guard lock(mutex_);
    auto& objects = objects_[static_cast<size_t>(rank)];
    size_t& live = live_[static_cast<size_t>(rank)];
    if (objects.size() >= 2 * live + 16) {
      std::erase_if(objects, [](const auto& known) { return known.expired(); });
      live = objects.size();
    }
    objects.push_back(object);
  }
  void remove(RemovalRank rank) {
    std::vector<std::weak_ptr<Removable>> objects;
    {
      const std::lock_guard lock(mutex_);
      objects = objects_[static_cast<size_t>(rank)];
    }
    for (const auto& known : objects) {
      if (const auto object = known.lock()) object->on_removal();
    }
  }

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<bool> refused_{false};
  std::mutex mutex_;
  size_t live_[kRemovalRanks] = {};
  std::vector<std::weak_ptr<Removable>> objects_[kRemovalRanks];
};

// One use, until end() or the destructor. Throws no_device after the removal.
class DeviceUse {
 public:
  DeviceUse(DeviceUses& uses, const std::string& device, const char* operation) : uses_(&uses) {
    if (!uses.begin()) throw Error("no_device", operation, "the device " + device + " was removed");
  }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;
  ~DeviceUse() { end(); }
  void end() {
    if (DeviceUses* uses = uses_.exchange(nullptr)) uses->end();
  }

 private:
  std::atomic<DeviceUses*> uses_;
};

}  // namespace verbena::ibv
