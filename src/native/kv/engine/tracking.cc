#include "kv/engine/tracking.h"

#include <algorithm>
#include <iterator>

namespace verbena::kv {

Tracking::~Tracking() {
  if (observer_ != 0) keyspace_.unobserve(observer_);
}

void Tracking::start(uint64_t client, Options options, Arguments prefixes) {
  clients_[client] = options;
  for (const std::string_view prefix : prefixes) prefixes_[std::string(prefix)].clients.insert(client);
  if (observer_ != 0) return;
  observer_ = keyspace_.observe([this](uint32_t, std::optional<std::string_view> key) {
    if (key) {
      changed(*key);
    } else {
      all_changed();
    }
  });
}

void Tracking::stop(uint64_t client) {
  if (clients_.erase(client) == 0) return;
  for (auto& [name, prefix] : prefixes_) prefix.clients.erase(client);
  std::erase_if(prefixes_, [](const auto& one) { return one.second.clients.empty(); });
  if (sweep_cursor_) {
    sweep_again_ = true;
  } else {
    sweep_cursor_.emplace();
  }
  if (!clients_.empty()) return;
  keyspace_.unobserve(std::exchange(observer_, 0));
  retired_.push_back(std::exchange(table_, {}));
  items_ = 0;
}

void Tracking::remember(uint64_t client, std::string_view key) {
  if (!clients_.contains(client)) return;
  auto at = table_.find(key);
  if (at == table_.end()) at = table_.emplace(std::string(key), std::vector<uint64_t>()).first;
  std::vector<uint64_t>& readers = at->second;
  const auto place = std::lower_bound(readers.begin(), readers.end(), client);
  if (place == readers.end() || *place != client) {
    readers.insert(place, client);
    ++items_;
  }
  constexpr size_t kAtOnce = 4;  // a call adds one key at most, so the table shrinks to its limit
  trim(kAtOnce);
}

void Tracking::changed(std::string_view key) {
  if (const auto at = table_.find(key); at != table_.end()) forget(at);
  for (auto& [name, prefix] : prefixes_) {
    if (!key.starts_with(name)) continue;
    prefix.changed.insert_or_assign(std::string(key), keyspace_.current_client);
    has_broadcasts_ = true;
  }
}

void Tracking::forget(Table::iterator at) {
  items_ -= at->second.size();
  auto node = table_.extract(at);
  std::erase_if(node.mapped(), [&](uint64_t client) {
    const auto found = clients_.find(client);
    if (found == clients_.end() || found->second.broadcasts) return true;
    return found->second.skips_own && client == keyspace_.current_client;
  });
  if (node.mapped().empty()) return;
  Message& message = messages_.emplace_back();
  message.clients = std::move(node.mapped());
  message.keys.emplace().push_back(std::move(node.key()));
}

// Consecutive calls yield one message only: FLUSHALL makes one call per database.
void Tracking::all_changed() {
  if (clients_.empty()) return;
  if (!table_.empty()) retired_.push_back(std::exchange(table_, {}));
  items_ = 0;
  if (!messages_.empty() && !messages_.back().keys) return;
  Message& message = messages_.emplace_back();
  for (const auto& [client, options] : clients_) message.clients.push_back(client);
}

std::vector<Tracking::Message> Tracking::take_broadcasts() {
  has_broadcasts_ = false;
  std::vector<Message> messages;
  for (auto& [name, prefix] : prefixes_) {
    const auto changed = std::exchange(prefix.changed, {});
    if (changed.empty()) continue;
    Message everything;
    everything.keys.emplace();
    for (const auto& [key, author] : changed) everything.keys->push_back(key);
    for (const uint64_t client : prefix.clients) {
      const bool some_are_its_own =
          clients_.at(client).skips_own &&
          std::any_of(changed.begin(), changed.end(), [&](const auto& one) { return one.second == client; });
      if (!some_are_its_own) {
        everything.clients.push_back(client);
        continue;
      }
      Message others{{client}, std::vector<std::string>()};
      for (const auto& [key, author] : changed) {
        if (author != client) others.keys->push_back(key);
      }
      if (!others.keys->empty()) messages.push_back(std::move(others));
    }
    if (!everything.clients.empty()) messages.push_back(std::move(everything));
  }
  return messages;
}

void Tracking::tidy() {
  constexpr size_t kAtOnce = 2048;
  trim(kAtOnce);
  sweep(kAtOnce);
  for (size_t left = kAtOnce; left > 0 && !retired_.empty(); --left) {
    Table& table = retired_.back();
    if (table.empty()) {
      retired_.pop_back();
    } else {
      table.erase(table.begin());
    }
  }
}

// Forgets up to `most` keys beyond the limit. Takes the keys in order, from where the last call stopped.
void Tracking::trim(size_t most) {
  for (; most_keys_ != 0 && table_.size() > most_keys_ && most > 0; --most) {
    auto at = table_.upper_bound(trim_cursor_);
    if (at == table_.end()) at = table_.begin();
    trim_cursor_ = at->first;
    const uint64_t author = std::exchange(keyspace_.current_client, 0);
    forget(at);
    keyspace_.current_client = author;
  }
}

void Tracking::sweep(size_t most) {
  if (!sweep_cursor_) return;
  auto at = table_.lower_bound(*sweep_cursor_);
  for (; at != table_.end() && most > 0; --most) {
    items_ -= std::erase_if(at->second, [&](uint64_t client) { return !clients_.contains(client); });
    at = at->second.empty() ? table_.erase(at) : std::next(at);
  }
  if (at != table_.end()) {
    sweep_cursor_ = at->first;
  } else if (std::exchange(sweep_again_, false)) {
    sweep_cursor_.emplace();
  } else {
    sweep_cursor_.reset();
  }
}

}  // namespace verbena::kv
