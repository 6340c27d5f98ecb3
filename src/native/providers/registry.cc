#include "providers/registry.h"

#include <pthread.h>

#include <map>
#include <mutex>

#include "providers/fake/provider.h"
#include "providers/ibv/provider.h"
#include "providers/iwarp/provider.h"
#include "providers/quic/provider.h"
#include "providers/shm/provider.h"
#include "util/error.h"

namespace verbena {
namespace {

struct ProviderEntry {
  std::string_view name;
  std::shared_ptr<Provider> (*make)();
};

constexpr ProviderEntry kProviders[] = {
    {"ibv", ibv::make_provider},   {"shm", shm::make_provider},   {"iwarp", iwarp::make_provider},
    {"quic", quic::make_provider}, {"fake", fake::make_provider},
};

// No thread may hold it at a fork: the child would wait for that thread, which stayed with the parent.
std::mutex providers_mutex;
[[maybe_unused]] const int registered = ::pthread_atfork(
    [] { providers_mutex.lock(); }, [] { providers_mutex.unlock(); }, [] { providers_mutex.unlock(); });

}  // namespace

std::vector<std::string_view> provider_names() {
  std::vector<std::string_view> names;
  for (const auto& entry : kProviders) names.push_back(entry.name);
  return names;
}

std::shared_ptr<Provider> find_provider(std::string_view name) {
  static std::map<std::string_view, std::shared_ptr<Provider>> made;
  for (const auto& entry : kProviders) {
    if (entry.name != name) continue;
    const std::lock_guard lock(providers_mutex);
    auto& provider = made[entry.name];
    if (!provider) provider = entry.make();
    return provider;
  }
  throw Error("unsupported_provider", "open provider", "unknown provider '" + std::string(name) + "'");
}

}  // namespace verbena
