// TensorHomes: where tensors rest that are offloaded (offload.level), and what brings them near.
//
//   FileHomes   in a file: a tensor keeps its address, and its pages come and go
//   HostHomes   in the memory of the host: a device computes with a window in memory of its own
//
//   homes.fetch({weight}, Part::kParameter);   // starts to bring it, nobody waits
//   homes.wait({weight}, Part::kParameter);
//   ... compute with homes.window(weight) ...
//   homes.store({weight}, Part::kParameter);   // it goes, with what was written
//
// Devices of a worker share what is near: it goes when as many have stored as have fetched.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

class TensorHomes {
 public:
  virtual ~TensorHomes() = default;

  // Whether a tensor rests here.
  virtual bool has(const at::Tensor& tensor) const = 0;
  // Empty where a dense CPU tensor that lies alone in its memory can rest here.
  virtual std::string why_not(const at::Tensor& /*tensor*/) const { return ""; }
  // Dense CPU tensors rest here from now on, with what they hold.
  virtual void take_in(const std::vector<at::Tensor>& tensors) = 0;
  // A tensor rests here no more, since it lies in its memory no longer alone.
  virtual void let_go(const at::Tensor& /*tensor*/) {}
  // From now on these are the states of a parameter, as far as they rest here.
  virtual void set_states(const at::Tensor& parameter, const std::vector<at::Tensor>& states) = 0;
  // Room for states of so many bytes in all, which nothing else takes.
  virtual void reserve(int64_t /*bytes*/) {}
  // A state of a parameter, which lies as the parameter does.
  virtual at::Tensor zeros_for(const at::Tensor& parameter) = 0;

  enum class Part : uint8_t { kParameter, kStates };
  // Whether what is brought will be written: by the update.
  enum class Access : uint8_t { kRead, kWrite };
  // Of a parameter: those that do not rest here are left alone.
  virtual void fetch(const std::vector<at::Tensor>& parameters, Part part,
                     Access access = Access::kRead) = 0;
  virtual void wait(const std::vector<at::Tensor>& parameters, Part part,
                    Access access = Access::kRead) = 0;
  virtual void store(const std::vector<at::Tensor>& parameters, Part part) = 0;

  // What a device computes with in place of a tensor: the tensor itself, or its window, which may
  // be touched from a wait to the store only.
  virtual bool has_windows() const { return false; }
  virtual at::Tensor window(const at::Tensor& tensor) { return tensor; }
  // Where an update works on what lies at this address, and writes it.
  virtual void* to_be_written(void* data) { return data; }

  // Before the devices run: no more than so many bytes may be near.
  virtual void begin(int64_t /*most_near*/) {}
  // After an update, also one that failed: tensors hold what was written.
  virtual void write_back() {}
  // Throws epl::Error where something could not be written, ever.
  virtual void check_written() const {}
  // Between steps: nothing is in use, and nothing stays near.
  virtual void rest() = 0;

  // Bytes that fetch() has brought and that have not gone; and most at once since begin_lap().
  virtual int64_t near() const = 0;
  virtual void begin_lap() = 0;
  virtual int64_t most_near() const = 0;
};

}  // namespace epl
