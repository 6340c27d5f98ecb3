// Control messages between two processes over a Unix socket (SOCK_SEQPACKET), for set-up only, with
// descriptors attached. Fixed layout, exact lengths, version in the first message. control.h sends and checks
// them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace verbena::shm {

constexpr uint32_t kControlMagic = 0x4d534256;  // "VBSM"
constexpr uint16_t kControlVersion = 3;
constexpr size_t kMaxPrivateData = 512;
constexpr size_t kMaxServiceName = 80;
constexpr size_t kMaxPayload = kMaxPrivateData + kMaxServiceName;

enum class MessageKind : uint16_t {
  hello = 1,    // identity
  refuse,       // refuses the link; payload: an error code
  arena,        // a new arena; argument: id; descriptor: memory
  arena_gone,   // argument: id
  attach,       // requests a connection of two QPs; descriptor: the sender's ring
  attached,     // here is mine; descriptor: ring. argument: 0, or 1 for "no such QP"
  connect,      // payload: service name, private data; descriptor: ring
  accept,       // payload: private data; descriptor: ring
  reject,       // payload: private data; argument: 0 rejected by the program, 1 no listener
  established,  // the initiator has seen the accept
  disconnect,
  access,   // the program has connected a QP to one of the peer's; descriptor: region table
  wake,     // a doorbell: there is work in a ring
  claim,    // asks whether the receiver opened the link whose hello had the nonce connection_id
  claimed,  // the answer; argument: 0 yes, 1 no
};

struct ControlHeader {
  uint32_t magic;
  uint16_t version;
  MessageKind kind;
  uint32_t from_qp;
  uint32_t to_qp;
  uint64_t connection_id;  // the end of a connection that the message is for; chosen by the initiator
  uint64_t argument;
  uint16_t service_length;
  uint16_t private_length;
  uint32_t unused;
};
static_assert(sizeof(ControlHeader) == 40);

// The payload of hello. The GID is a claim until the process that listens at its address confirms the nonce.
struct Hello {
  uint8_t gid[16];
  uint64_t nonce;  // random, of this link
};
// The payload of access.
struct AccessGrant {
  uint64_t probe_addr;  // process_vm_readv of these 8 bytes must return probe_token
  uint64_t probe_token;
};
static_assert(sizeof(Hello) == 24 && sizeof(AccessGrant) == 16);

}  // namespace verbena::shm
