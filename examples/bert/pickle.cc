#include "examples/bert/pickle.h"

#include <map>
#include <stdexcept>

namespace bert {
namespace {

using Kind = PickledValue::Kind;
using Pointer = PickledValue::Pointer;

[[noreturn]] void fail(const std::string& why) {
  throw std::runtime_error("its pickle cannot be read: " + why);
}

Pointer value_of(Kind kind) {
  auto value = std::make_shared<PickledValue>();
  value->kind = kind;
  return value;
}

Pointer number_of(int64_t number) {
  Pointer value = value_of(Kind::kNumber);
  value->number = number;
  return value;
}

Pointer text_of(Kind kind, std::string text) {
  Pointer value = value_of(kind);
  value->text = std::move(text);
  return value;
}

std::vector<int64_t> numbers_of(const Pointer& list) {
  std::vector<int64_t> numbers;
  for (const Pointer& item : list->items) numbers.push_back(item->number);
  return numbers;
}

class Machine {
 public:
  explicit Machine(std::istream& in) : in_(in) {}

  Pointer run() {
    for (;;) {
      const int instruction = byte();
      if (instruction == '.') return pop();
      step(static_cast<unsigned char>(instruction));
    }
  }

 private:
  void step(unsigned char instruction) {
    switch (instruction) {
      case 0x80:  // PROTO
        byte();
        return;
      case 0x95:  // FRAME
        little_endian(8);
        return;
      case '(':
        return push(value_of(Kind::kMark));
      case 'N':
        return push(value_of(Kind::kOpaque));
      case 0x88:  // NEWTRUE
        return push(number_of(1));
      case 0x89:  // NEWFALSE
        return push(number_of(0));
      case 'K':
        return push(number_of(little_endian(1)));
      case 'M':
        return push(number_of(little_endian(2)));
      case 'J':
        return push(number_of(static_cast<int32_t>(little_endian(4))));
      case 0x8a:  // LONG1
        return push(long_number());
      case 'G':  // a float, which no tensor needs
        bytes(8);
        return push(value_of(Kind::kOpaque));
      case 'X':
        return push(text_of(Kind::kText, bytes(little_endian(4))));
      case 0x8c:  // SHORT_BINUNICODE
        return push(text_of(Kind::kText, bytes(little_endian(1))));
      case 'c':
        return push(name_of_lines());
      case 0x93:  // STACK_GLOBAL
        return push_name();
      case '}':
        return push(value_of(Kind::kDictionary));
      case ']':
      case ')':
        return push(value_of(Kind::kList));
      case 0x85:  // TUPLE1 to TUPLE3
      case 0x86:
      case 0x87:
        return push_list(top(instruction - 0x84U));
      case 't':
      case 'l':
        return push_list(above_mark());
      case 'a':
        return append(top(1));
      case 'e':
        return append(above_mark());
      case 's':
        return set_items(top(2));
      case 'u':
        return set_items(above_mark());
      case 'q':
        memo_[little_endian(1)] = peek();
        return;
      case 'r':
        memo_[little_endian(4)] = peek();
        return;
      case 0x94:  // MEMOIZE
        memo_[static_cast<int64_t>(memo_.size())] = peek();
        return;
      case 'h':
        return push(remembered(little_endian(1)));
      case 'j':
        return push(remembered(little_endian(4)));
      case 'Q':
        return push_storage();
      case 'R':
      case 0x81:  // NEWOBJ
        return call();
      case 'b':  // attributes of an object, such as a state_dict's _metadata
        pop();
        return;
      default:
        fail("it has the unknown instruction " + std::to_string(instruction));
    }
  }

  // --- the file ---
  int byte() {
    const int value = in_.get();
    if (value == std::istream::traits_type::eof()) fail("it ends too early");
    return value;
  }

  std::string bytes(int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += static_cast<char>(byte());
    return text;
  }

  int64_t little_endian(int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= static_cast<uint64_t>(byte()) << (8 * i);
    return static_cast<int64_t>(value);
  }

  // Numbers of more than 8 bytes, such as torch.save()'s first, keep their lowest ones.
  Pointer long_number() {
    const std::string digits = bytes(byte());
    uint64_t value = 0;
    for (size_t i = 0; i < 8; ++i) {
      const bool negative = !digits.empty() && (digits.back() & 0x80) != 0;
      const unsigned char digit = i < digits.size() ? static_cast<unsigned char>(digits[i])
                                  : negative        ? 0xff
                                                    : 0;
      value |= static_cast<uint64_t>(digit) << (8 * i);
    }
    return number_of(static_cast<int64_t>(value));
  }

  Pointer name_of_lines() {
    std::string module, name;
    if (!std::getline(in_, module) || !std::getline(in_, name)) fail("it ends too early");
    return text_of(Kind::kName, module + "." + name);
  }

  // --- the stack ---
  void push(Pointer value) { stack_.push_back(std::move(value)); }

  const Pointer& peek() const {
    if (stack_.empty()) fail("its stack is empty");
    return stack_.back();
  }

  Pointer pop() {
    Pointer value = peek();
    stack_.pop_back();
    return value;
  }

  std::vector<Pointer> top(size_t count) {
    if (stack_.size() < count) fail("its stack is empty");
    std::vector<Pointer> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  std::vector<Pointer> above_mark() {
    size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1]->kind != Kind::kMark) --mark;
    if (mark == 0) fail("a mark is missing");
    std::vector<Pointer> values = top(stack_.size() - mark);
    stack_.pop_back();
    return values;
  }

  const Pointer& remembered(int64_t key) const {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("it refers to a value that it does not have");
    return found->second;
  }

  // --- values ---
  void push_list(std::vector<Pointer> items) {
    Pointer list = value_of(Kind::kList);
    list->items = std::move(items);
    push(std::move(list));
  }

  void append(const std::vector<Pointer>& items) {
    auto& list = peek()->items;
    list.insert(list.end(), items.begin(), items.end());
  }

  void set_items(const std::vector<Pointer>& items) {
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      peek()->pairs.emplace_back(items[i], items[i + 1]);
    }
  }

  void push_name() {
    const std::vector<Pointer> parts = top(2);
    push(text_of(Kind::kName, parts[0]->text + "." + parts[1]->text));
  }

  // ("storage", torch.FloatStorage, key, place, number of elements, view of another or None)
  void push_storage() {
    const Pointer id = pop();
    const auto& parts = id->items;
    if (parts.size() < 5 || parts[0]->text != "storage") fail("it refers to something unknown");
    if (parts.size() > 5 && parts[5]->kind == Kind::kList) fail("it has views of storages");
    Pointer storage = value_of(Kind::kStorage);
    storage->tensor.type = parts[1]->text.substr(parts[1]->text.rfind('.') + 1);
    storage->tensor.storage = parts[2]->text;
    storage->tensor.storage_size = parts[4]->number;
    push(std::move(storage));
  }

  void call() {
    const Pointer arguments = pop();
    const std::string function = pop()->text;
    const auto& given = arguments->items;
    if (function == "collections.OrderedDict") {
      push(value_of(Kind::kDictionary));
    } else if (function == "torch._utils._rebuild_tensor_v2" && given.size() >= 4 &&
               given[0]->kind == Kind::kStorage) {
      // (storage, offset, sizes, strides, requires_grad, hooks)
      Pointer tensor = value_of(Kind::kTensor);
      tensor->tensor = given[0]->tensor;
      tensor->tensor.offset = given[1]->number;
      tensor->tensor.sizes = numbers_of(given[2]);
      tensor->tensor.strides = numbers_of(given[3]);
      push(std::move(tensor));
    } else if ((function == "torch._utils._rebuild_parameter" ||
                function == "torch.jit._pickle.restore_type_tag") &&
               !given.empty()) {
      push(given[0]);
    } else {
      push(value_of(Kind::kOpaque));
    }
  }

  std::istream& in_;
  std::vector<Pointer> stack_;
  std::map<int64_t, Pointer> memo_;
};

}  // namespace

PickledValue::Pointer read_pickle(std::istream& in) { return Machine(in).run(); }

}  // namespace bert
