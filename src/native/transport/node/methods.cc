#include "transport/node/methods.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>

#include "transport/node/node.h"
#include "transport/session/session.h"
#include "util/crc32c/crc32c.h"
#include "util/error.h"
#include "verbs/types.h"

namespace verbena::transport {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Calls a function with the request's fields; a request of another size is refused.
template <typename Fields, typename Function>
class Method final : public Handler {
 public:
  explicit Method(Function function) : function_(function) {}
  void handle(const Request& request) override {
    Fields fields;
    if (request.payload.size() != sizeof fields) {
      return request.session.fail(request.call, Outcome::remote_failure, "the request has the wrong size");
    }
    std::memcpy(&fields, request.payload.data(), sizeof fields);
    function_(request, fields);
  }

 private:
  Function function_;
};

template <typename Fields, typename Function>
void add(Node& node, uint32_t number, Function function) {
  node.handle(number, std::make_shared<Method<Fields, Function>>(function));
}

class Echo final : public Handler {
 public:
  void handle(const Request& request) override { request.session.reply(request.call, request.payload); }
};

// The bytes of a range of an exposed region. Empty: the session may not use them, and the request was failed.
std::optional<std::span<std::byte>> find_range(Node& node, const Request& request, uint64_t key,
                                               uint64_t offset, uint64_t length, uint32_t access) {
  ExposedRegion* region = node.regions().find(key, request.session);
  if (!region || (region->access & access) != access) {
    request.session.fail(request.call, Outcome::denied, "the region was revoked, or is not for this use");
    return {};
  }
  const size_t size = region->memory.length();
  if (offset > size || length > size - offset) {
    request.session.fail(request.call, Outcome::out_of_range, "the range leaves the region");
    return {};
  }
  return std::span(region->memory.data() + offset, length);
}

void resolve(Node& node, const Request& request, const ResolveRequest& fields) {
  ExposedRegion* region = node.regions().find(fields.key, request.session);
  Link* link = request.session.link();
  if (!region || !link) {
    return request.session.fail(request.call, Outcome::denied, "the region was revoked, or is not for you");
  }
  try {
    const uint32_t rkey = node.registering([&] { return link->lend(*region); });
    const ResolveReply reply{reinterpret_cast<uint64_t>(region->memory.data()), region->memory.length(), rkey,
                             region->access};
    request.session.reply(request.call, bytes_of(reply));
  } catch (const Error& error) {
    // A device binds windows in the order of the requests: a peer that receives nothing delays each further
    // bind.
    if (error.code() == "queue_full")
      return request.session.lose_link(Status::rnr_retry_exc_err, error.what());
    request.session.fail(request.call, Outcome::remote_failure, error.what());
  } catch (const std::exception& error) {
    request.session.fail(request.call, Outcome::remote_failure, error.what());
  }
}

// A range to be summed. The node's lock is held meanwhile, so a fragment of a transfer is the longest.
std::optional<std::span<std::byte>> find_fragment(Node& node, const Request& request,
                                                  const RangeRequest& fields, uint32_t access) {
  if (fields.length > kMaxFragment) {
    request.session.fail(request.call, Outcome::out_of_range, "the range is longer than a fragment may be");
    return {};
  }
  return find_range(node, request, fields.key, fields.offset, fields.length, access);
}

void verify(Node& node, const Request& request, const RangeRequest& fields) {
  const auto range = find_fragment(node, request, fields, access::remote_write);
  if (!range) return;
  const uint32_t same = crc32c(0, range->data(), range->size()) == fields.crc;
  request.session.reply(request.call, bytes_of(same));
}

void checksum(Node& node, const Request& request, const RangeRequest& fields) {
  const auto range = find_fragment(node, request, fields, access::remote_read);
  if (!range) return;
  const uint32_t crc = crc32c(0, range->data(), range->size());
  request.session.reply(request.call, bytes_of(crc));
}

void atomic_operation(Node& node, const Request& request, const AtomicRequest& fields) {
  const auto range =
      find_range(node, request, fields.key, fields.offset, sizeof(uint64_t), access::remote_atomic);
  if (!range) return;
  if (reinterpret_cast<uintptr_t>(range->data()) % sizeof(uint64_t) != 0) {
    return request.session.fail(request.call, Outcome::out_of_range, "the word is not aligned to 8 bytes");
  }
  std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(range->data()));
  uint64_t before = fields.compare_add;
  if (fields.opcode == static_cast<uint32_t>(Opcode::fetch_add)) {
    before = word.fetch_add(fields.compare_add);
  } else {
    word.compare_exchange_strong(before, fields.swap);
  }
  request.session.reply(request.call, bytes_of(before));
}

}  // namespace

uint32_t method::of_name(std::string_view name) {
  constexpr uint32_t kOwn = 256;
  const uint32_t number = crc32c(0, name.data(), name.size());
  return number < kOwn ? number + kOwn : number;
}

void add_own_methods(Node& node) {
  node.handle(method::echo, std::make_shared<Echo>());
  const auto with_node = [&node](auto function) {
    return [&node, function](const Request& request, const auto& fields) { function(node, request, fields); };
  };
  add<ResolveRequest>(node, method::resolve, with_node(resolve));
  add<RangeRequest>(node, method::verify, with_node(verify));
  add<RangeRequest>(node, method::checksum, with_node(checksum));
  add<AtomicRequest>(node, method::atomic, with_node(atomic_operation));
}

}  // namespace verbena::transport
