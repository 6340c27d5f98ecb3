// Whether a peer is the process whose GID it claims. A queue pair is bound to the peer that attaches to it,
// so a request to attach waits until the process that listens at the address of the GID has confirmed the
// link. Connections of the connection manager need no proof: the program accepts the link that asks.
#include <algorithm>

#include "providers/shm/context.h"

namespace verbena::shm {

// False: the peer violated the protocol, and the link must be closed.
bool ShmContext::handle_proved_attach(const std::shared_ptr<Link>& link, ControlMessage& message) {
  if (link->is_proved() == true) {
    handle_attach(link, message);
    return true;
  }
  if (link->is_proved() == false) return false;
  return link->keep_until_proved(message) && prove(link);
}

// Asks the process at the address of the peer's GID for a confirmation. False: no process listens there.
bool ShmContext::prove(const std::shared_ptr<Link>& link) {
  const auto owner = link_to(node_address(link->gid()));
  return owner && owner->send({.kind = MessageKind::claim, .connection_id = link->peer_nonce()});
}

void ShmContext::handle_claim(const std::shared_ptr<Link>& link, const ControlMessage& message) {
  bool confirmed = false;
  {
    const std::lock_guard lock(control_mutex_);
    confirmed = std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
      const Link& own = *entry.second;
      // Only for the process that this one has dialled: another one may pass its nonce on.
      return own.nonce() == message.header.connection_id && own.dialled() == node_address(link->gid());
    });
  }
  link->send({.kind = MessageKind::claimed,
              .connection_id = message.header.connection_id,
              .argument = confirmed ? 0u : 1u});
}

void ShmContext::handle_claimed(const std::shared_ptr<Link>& link, const ControlMessage& message) {
  if (link->is_proved() != true) return;
  std::shared_ptr<Link> claimant;
  {
    const std::lock_guard lock(control_mutex_);
    const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
      return entry.second->ready() && !entry.second->is_proved() && entry.second->gid() == link->gid() &&
             entry.second->peer_nonce() == message.header.connection_id;
    });
    if (found == links_.end()) return;
    claimant = found->second;
  }
  claimant->set_proved(message.header.argument == 0);
  auto waiting = claimant->take_kept();
  if (claimant->is_proved() == false) return remove_link(claimant);
  for (ControlMessage& request : waiting) handle_attach(claimant, request);
}

}  // namespace verbena::shm
