#include "kv/tracking.h"

#include <algorithm>

namespace verbena::kv {

Tracking::~Tracking() {
  if (observer_ != 0) keyspace_.unobserve(observer_);
}

void Tracking::start(uint64_t client, Wish wish, Words prefixes) {
  clients_[client] = wish;
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
  to_sweep_ = table_.bucket_count();
  if (!clients_.empty()) return;
  keyspace_.unobserve(std::exchange(observer_, 0));
  flushed_.push_back(std::exchange(table_, new_table()));
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
  constexpr size_t kAtOnce = 4;  // more than come
  trim(kAtOnce);
}

void Tracking::changed(std::string_view key) {
  if (const auto at = table_.find(key); at != table_.end()) forget(at);
  for (auto& [name, prefix] : prefixes_) {
    if (!key.starts_with(name)) continue;
    prefix.changed.insert_or_assign(std::string(key), keyspace_.author);
    has_broadcasts_ = true;
  }
}

void Tracking::forget(Table::iterator at) {
  items_ -= at->second.size();
  auto node = table_.extract(at);
  std::erase_if(node.mapped(), [&](uint64_t client) {
    const auto found = clients_.find(client);
    if (found == clients_.end() || found->second.broadcasts) return true;
    return found->second.skips_own && client == keyspace_.author;
  });
  if (node.mapped().empty()) return;
  Message& message = messages_.emplace_back(std::move(node.mapped()));
  message.keys.emplace().push_back(std::move(node.key()));
}

// All databases at once make one message.
void Tracking::all_changed() {
  if (clients_.empty()) return;
  if (!table_.empty()) flushed_.push_back(std::exchange(table_, new_table()));
  items_ = 0;
  if (!messages_.empty() && !messages_.back().keys) return;
  Message& message = messages_.emplace_back();
  for (const auto& [client, wish] : clients_) message.clients.push_back(client);
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
  for (size_t left = kAtOnce; left > 0 && !flushed_.empty(); --left) {
    Table& table = flushed_.back();
    if (table.empty()) {
      flushed_.pop_back();
    } else {
      table.erase(table.begin());
    }
  }
}

// Which keys go is as good as random: those whose buckets come next.
void Tracking::trim(size_t most) {
  for (; most_keys_ != 0 && table_.size() > most_keys_ && most > 0; --most) {
    constexpr size_t kSparse = 16, kFew = 1024;
    if (table_.bucket_count() > kSparse * table_.size() + kFew) table_.rehash(0);
    do {
      bucket_ = (bucket_ + 1) % table_.bucket_count();
    } while (table_.bucket_size(bucket_) == 0);
    const uint64_t author = std::exchange(keyspace_.author, 0);
    forget(table_.find(table_.begin(bucket_)->first));
    keyspace_.author = author;
  }
}

void Tracking::sweep(size_t most) {
  const size_t buckets = table_.bucket_count();
  if (to_sweep_ == 0 || table_.empty()) return void(to_sweep_ = 0);
  if (std::exchange(swept_buckets_, buckets) != buckets) to_sweep_ = buckets;
  std::vector<std::string> unread;
  for (; to_sweep_ > 0 && most > 0; --to_sweep_, --most) {
    bucket_ = (bucket_ + 1) % buckets;
    for (auto at = table_.begin(bucket_); at != table_.end(bucket_); ++at) {
      items_ -= std::erase_if(at->second, [&](uint64_t client) { return !clients_.contains(client); });
      if (at->second.empty()) unread.push_back(at->first);
    }
  }
  for (const std::string& key : unread) table_.erase(table_.find(key));
}

}  // namespace verbena::kv
