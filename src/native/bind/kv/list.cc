#include "bind/kv/list.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "bind/kv/store.h"

namespace verbena::bind {
namespace {

bool are_equal(PyObject* one, PyObject* other) {
  const Py_ssize_t size = PyBytes_GET_SIZE(one);
  return one == other ||
         (size == PyBytes_GET_SIZE(other) &&
          std::memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), static_cast<size_t>(size)) == 0);
}

std::vector<nb::bytes> all_of(const nb::iterable& elements) {
  std::vector<nb::bytes> all;
  for (const nb::handle each : elements) {
    if (!PyBytes_Check(each.ptr())) throw nb::type_error("elements of lists are bytes");
    all.push_back(nb::borrow<nb::bytes>(each));
  }
  return all;
}

// An iterator that keeps its position, however the list changes meanwhile.
struct Cursor {
  nb::object kept;
  const ElementList& list;
  Py_ssize_t place, step;

  nb::object next() {
    if (place < 0 || place >= static_cast<Py_ssize_t>(list.size())) throw nb::stop_iteration();
    const auto here = static_cast<size_t>(place);
    place += step;
    return nb::borrow(list.at(here));
  }
};

Cursor cursor(nb::handle self, bool forwards) {
  const auto& list = nb::cast<const ElementList&>(self);
  const Py_ssize_t last = static_cast<Py_ssize_t>(list.size()) - 1;
  return {nb::borrow(self), list, forwards ? 0 : last, forwards ? 1 : -1};
}

nb::list section(const ElementList& self, size_t start, size_t stop) {
  stop = std::min(stop, self.size());
  nb::list found;
  for (size_t place = start; place < stop; ++place) found.append(nb::handle(self.at(place)));
  return found;
}

std::vector<size_t> places_of(const ElementList& self, const nb::bytes& element, Py_ssize_t rank,
                              size_t count, size_t most) {
  const bool backwards = rank < 0;
  size_t skip = (backwards ? 0 - static_cast<size_t>(rank) : static_cast<size_t>(rank)) - 1;
  const size_t length = self.size();
  most = most == 0 ? length : std::min(most, length);
  std::vector<size_t> found;
  for (size_t i = 0; i < most; ++i) {
    const size_t place = backwards ? length - 1 - i : i;
    if (!are_equal(self.at(place), element.ptr())) continue;
    if (skip > 0) {
      --skip;
      continue;
    }
    found.push_back(place);
    if (found.size() == count) break;
  }
  return found;
}

size_t index(const ElementList& self, const nb::bytes& element) {
  const std::vector<size_t> found = places_of(self, element, 1, 1, 0);
  if (found.empty()) throw nb::value_error("no such element");
  return found.front();
}

bool equals(const ElementList& self, nb::handle other) {
  const ElementList* list = nullptr;
  if (!nb::try_cast(other, list) || !list || list->size() != self.size()) return false;
  for (size_t place = 0; place < self.size(); ++place) {
    if (!are_equal(self.at(place), list->at(place))) return false;
  }
  return true;
}

}  // namespace

size_t ElementList::place_of(Py_ssize_t index) const {
  const auto length = static_cast<Py_ssize_t>(size());
  const Py_ssize_t place = index < 0 ? index + length : index;
  if (place < 0 || place >= length) throw nb::index_error("no such place in the list");
  return static_cast<size_t>(place);
}

void ElementList::insert(size_t place, const std::vector<nb::bytes>& ones) {
  const auto at = elements_.begin() + static_cast<std::ptrdiff_t>(place);
  const auto first = elements_.insert(at, ones.size(), nullptr);
  std::transform(ones.begin(), ones.end(), first, [&](const nb::bytes& one) {
    held_ += kElement + one.size();
    return one.inc_ref().ptr();
  });
  for (kv::ListCopyCursor* const walk : walks_) walk->inserted(place, ones.size());
}

void ElementList::erase(size_t place, size_t count) {
  const auto first = elements_.begin() + static_cast<std::ptrdiff_t>(place);
  const auto last = first + static_cast<std::ptrdiff_t>(count);
  for (auto each = first; each != last; ++each) {
    held_ -= kElement + static_cast<size_t>(PyBytes_GET_SIZE(*each));
    Py_DECREF(*each);
  }
  elements_.erase(first, last);
  for (kv::ListCopyCursor* const walk : walks_) walk->erased(place, count);
}

nb::object ElementList::take(size_t place) {
  nb::object element = nb::borrow(elements_[place]);
  erase(place, 1);
  return element;
}

void ElementList::replace(size_t place, const nb::bytes& element) {
  const nb::object old = nb::steal(std::exchange(elements_[place], element.inc_ref().ptr()));
  held_ += element.size();
  held_ -= static_cast<size_t>(PyBytes_GET_SIZE(old.ptr()));
  for (kv::ListCopyCursor* const walk : walks_) walk->replaced(place);
}

size_t ElementList::remove(const nb::bytes& element, Py_ssize_t limit) {
  const size_t most = limit == 0  ? size()
                      : limit < 0 ? 0 - static_cast<size_t>(limit)
                                  : static_cast<size_t>(limit);
  std::vector<size_t> places;
  for (size_t i = 0; i < size() && places.size() < most; ++i) {
    const size_t place = limit < 0 ? size() - 1 - i : i;
    if (are_equal(elements_[place], element.ptr())) places.push_back(place);
  }
  if (limit < 0) std::reverse(places.begin(), places.end());
  if (places.empty()) return 0;
  // Each remaining element moves left by the number of elements removed before it.
  size_t next = 0, to = places.front();
  for (size_t from = to; from < size(); ++from) {
    if (next < places.size() && places[next] == from) {
      ++next;
      held_ -= kElement + static_cast<size_t>(PyBytes_GET_SIZE(elements_[from]));
      Py_DECREF(elements_[from]);
    } else {
      elements_[to++] = elements_[from];
    }
  }
  elements_.resize(to);
  for (kv::ListCopyCursor* const walk : walks_) {
    for (size_t i = 0; i < places.size(); ++i) walk->erased(places[i] - i, 1);
  }
  return places.size();
}

void bind_kv_list(nb::module_& m) {
  nb::class_<Cursor>(m, "ListCursor", "Iterates over the elements of a list.")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> ListCursor"))
      .def("__next__", &Cursor::next, nb::sig("def __next__(self) -> bytes"));
  auto list = nb::class_<ElementList>(m, "List", "A list of bytes, from left to right.");
  list.attr("TYPE") = "list";
  list.def(
          "__init__",
          [](ElementList* self, const nb::iterable& elements) {
            ElementList made;
            made.insert(0, all_of(elements));
            new (self) ElementList(std::move(made));
          },
          nb::arg("elements") = nb::tuple(),
          nb::sig("def __init__(self, elements: Iterable[bytes] = ()) -> None"))
      .def_prop_ro("memory_bytes", &ElementList::held,
                   "The approximate memory use, kept up to date as elements are added and removed.")
      .def("__len__", &ElementList::size)
      .def(
          "__iter__", [](nb::handle self) { return cursor(self, true); },
          nb::sig("def __iter__(self) -> ListCursor"))
      .def(
          "__reversed__", [](nb::handle self) { return cursor(self, false); },
          nb::sig("def __reversed__(self) -> ListCursor"))
      .def(
          "__getitem__",
          [](const ElementList& self, Py_ssize_t place) { return nb::borrow(self.at(self.place_of(place))); },
          nb::arg("place"), nb::sig("def __getitem__(self, place: int) -> bytes"))
      .def(
          "__setitem__",
          [](ElementList& self, Py_ssize_t place, const nb::bytes& element) {
            self.replace(self.place_of(place), element);
          },
          nb::arg("place"), nb::arg("element"))
      .def("__eq__", equals, nb::arg("other"), nb::sig("def __eq__(self, other: object) -> bool"))
      .def(
          "__repr__",
          [](const ElementList& self) { return nb::str("List({!r})").format(section(self, 0, self.size())); })
      .def(
          "append", [](ElementList& self, const nb::bytes& element) { self.insert(self.size(), {element}); },
          nb::arg("element"))
      .def(
          "appendleft", [](ElementList& self, const nb::bytes& element) { self.insert(0, {element}); },
          nb::arg("element"))
      .def(
          "extend",
          [](ElementList& self, const nb::iterable& elements) { self.insert(self.size(), all_of(elements)); },
          nb::arg("elements"), nb::sig("def extend(self, elements: Iterable[bytes]) -> None"))
      .def(
          "extendleft",
          [](ElementList& self, const nb::iterable& elements) {
            std::vector<nb::bytes> all = all_of(elements);
            std::reverse(all.begin(), all.end());
            self.insert(0, all);
          },
          nb::arg("elements"), nb::sig("def extendleft(self, elements: Iterable[bytes]) -> None"),
          "Adds elements at the left, one after another: the last becomes the first.")
      .def(
          "insert",
          [](ElementList& self, size_t place, const nb::bytes& element) {
            self.insert(std::min(place, self.size()), {element});
          },
          nb::arg("place"), nb::arg("element"))
      .def(
          "pop", [](ElementList& self) { return self.take(self.place_of(-1)); },
          nb::sig("def pop(self) -> bytes"))
      .def(
          "popleft", [](ElementList& self) { return self.take(self.place_of(0)); },
          nb::sig("def popleft(self) -> bytes"))
      .def(
          "trim",
          [](ElementList& self, size_t start, size_t stop) {
            stop = std::min(stop, self.size());
            self.erase(stop, self.size() - stop);
            self.erase(0, std::min(start, stop));
          },
          nb::arg("start"), nb::arg("stop"), "Only these places stay.")
      .def("clear", [](ElementList& self) { self.erase(0, self.size()); })
      .def("remove", &ElementList::remove, nb::arg("element"), nb::arg("limit"),
           "Removes elements that equal `element`: `limit` from the left, from the right if negative, all if "
           "0. Returns their number.")
      .def("index", index, nb::arg("element"),
           "Returns the first index of the element. ValueError: there is none.")
      .def("places", places_of, nb::arg("element"), nb::arg("rank"), nb::arg("count"), nb::arg("most"),
           nb::sig("def places(self, element: bytes, rank: int, count: int, most: int) -> list[int]"),
           "Returns indexes of the element from its `rank`-th occurrence (negative: from the right): `count` "
           "of them (0: all), comparing at most `most` elements (0: all).")
      .def("section", section, nb::arg("start"), nb::arg("stop"),
           nb::sig("def section(self, start: int, stop: int) -> list[bytes]"))
      .def(
          "free_some",
          [](ElementList& self, size_t count) {
            count = std::min(count, self.size());
            self.erase(self.size() - count, count);
          },
          nb::arg("count"));
}

}  // namespace verbena::bind
