// Binds protection domains, queue pairs and shared receive queues: set-up and raw posts. Tracked operations
// are in operations.cc.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "bind/errors.h"
#include "bind/unlocked.h"
#include "bind/verbs/queues.h"

namespace verbena::bind {
namespace {

constexpr size_t kStackRequests = 16;

// Posts a tuple of work requests. If not all are accepted, raises an error with the number of accepted ones.
template <typename Request, typename Posted, typename Post>
void post_all(const nb::tuple& requests, RequestReferences& kept, const char* operation,
              const std::string& peer, Post post) {
  const size_t count = requests.size();
  Posted few[kStackRequests];
  std::vector<Posted> many(count > kStackRequests ? count : 0);
  Posted* const batch = many.empty() ? few : many.data();
  for (size_t i = 0; i < count; ++i) batch[i] = nb::cast<const Request&>(requests[i]).posted();
  const PostResult result = post(std::span<const Posted>(batch, count));
  for (size_t i = 0; i < result.accepted; ++i) kept.add(nb::cast<const Request&>(requests[i]).local);
  if (result.accepted < count) raise_post(result.error, result.accepted, operation, peer);
}

void post_send(QueuePairHandle& self, const nb::tuple& requests) {
  QueuePair& qp = self.qp.use("post_send");
  post_all<SendWorkRequest, SendRequest>(requests, self.send_references, "post_send", self.peer,
                                         [&](auto batch) { return qp.post_send(batch); });
}

void post_recv(QueuePairHandle& self, const nb::tuple& requests) {
  QueuePair& qp = self.qp.use("post_recv");
  post_all<RecvWorkRequest, RecvRequest>(requests, self.recv_references, "post_recv", self.peer,
                                         [&](auto batch) { return qp.post_recv(batch); });
}

void post_shared(SharedReceiveQueueHandle& self, const nb::tuple& requests) {
  SharedReceiveQueue& srq = self.srq.use("post_recv");
  post_all<RecvWorkRequest, RecvRequest>(requests, self.kept, "post_recv", {},
                                         [&](auto batch) { return srq.post(batch); });
}

QueuePairHandle* create_qp(DomainHandle& self, CompletionQueueHandle& send_cq, CompletionQueueHandle& recv_cq,
                           SharedReceiveQueueHandle* srq, uint32_t max_send, uint32_t max_recv,
                           uint32_t max_send_sge, uint32_t max_recv_sge, uint32_t max_inline,
                           bool signal_all) {
  constexpr const char* kOperation = "create_qp";
  QpOptions options{.send_cq = send_cq.cq.share(kOperation),
                    .recv_cq = recv_cq.cq.share(kOperation),
                    .limits = {max_send, max_recv, max_send_sge, max_recv_sge, max_inline},
                    .signal_all = signal_all};
  if (srq) options.srq = srq->srq.share(kOperation);
  std::shared_ptr<QueuePair> qp;
  {
    const Unlocked unlocked;
    qp = self.pd.use(kOperation).create_qp(options);
  }
  return new QueuePairHandle(std::move(qp), send_cq, recv_cq, self);
}

SharedReceiveQueueHandle* create_srq(DomainHandle& self, uint32_t max_recv, uint32_t max_sge) {
  return new SharedReceiveQueueHandle(self.pd.use("create_srq").create_srq(max_recv, max_sge), max_recv);
}

}  // namespace

void bind_queue_pair(nb::module_& m) {
  nb::class_<DomainHandle>(m, "ProtectionDomain")
      .def("create_qp", create_qp, nb::arg("send_cq"), nb::arg("recv_cq"), nb::arg("srq").none(),
           nb::arg("max_send"), nb::arg("max_recv"), nb::arg("max_send_sge"), nb::arg("max_recv_sge"),
           nb::arg("max_inline"), nb::arg("signal_all"))
      .def("create_srq", create_srq, nb::arg("max_recv"), nb::arg("max_sge"))
      .def("close", &DomainHandle::close);

  nb::class_<SharedReceiveQueueHandle>(m, "SharedReceiveQueue")
      .def("post_recv", post_shared, nb::arg("requests"),
           nb::sig("def post_recv(self, requests: tuple[RecvWorkRequest, ...]) -> None"))
      .def("close", &SharedReceiveQueueHandle::close);

  nb::class_<QueuePair>(m, "QueuePairCore", "The provider's own queue pair, for native loops.");
  nb::class_<QueuePairHandle>(m, "QueuePair")
      .def("post_send", post_send, nb::arg("requests"),
           nb::sig("def post_send(self, requests: tuple[SendWorkRequest, ...]) -> None"))
      .def("post_recv", post_recv, nb::arg("requests"),
           nb::sig("def post_recv(self, requests: tuple[RecvWorkRequest, ...]) -> None"))
      .def_ro("number", &QueuePairHandle::number)
      .def_rw("peer", &QueuePairHandle::peer)
      .def_prop_ro("state", [](const QueuePairHandle& self) { return self.qp.use("state").state(); })
      .def_prop_ro("limits", [](const QueuePairHandle& self) { return self.qp.core()->limits(); })
      .def_prop_ro("attributes",
                   [](const QueuePairHandle& self) { return self.qp.use("attributes").attributes(); })
      .def_prop_ro("capabilities",
                   [](const QueuePairHandle& self) { return self.qp.use("capabilities").capabilities(); })
      .def(
          "modify",
          [](QueuePairHandle& self, const QpAttributes& wanted) {
            QueuePair& qp = self.qp.use("modify");
            const Unlocked unlocked;
            qp.modify(wanted);
          },
          nb::arg("wanted"))
      .def_prop_ro(
          "core", [](const QueuePairHandle& self) -> QueuePair& { return *self.qp.core(); },
          nb::rv_policy::reference_internal)
      .def("close", &QueuePairHandle::close);
}

}  // namespace verbena::bind
