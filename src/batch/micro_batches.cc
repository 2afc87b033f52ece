#include "batch/micro_batches.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace epl {
namespace {

constexpr const char* kKey = "pipeline.num_micro_batch";

void check_defined(const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    EPL_CHECK(batch[i].defined(), concat("tensor ", i, " of the batch is undefined"),
              "epl::Trainer::step", "leave it out, or pass an empty tensor");
  }
}

std::string asked_by(const Shares& shares, const Config& config) {
  if (shares.devices() == 1) return config.asked_by(kKey);
  return shares.micro_batches == 1
             ? shares.asked_by
             : concat(config.asked_by(kKey), "\n            ", shares.asked_by);
}

// "4 micro batches", "2 devices", "4 micro batches on each of 2 devices"
std::string describe_parts(const Shares& shares) {
  const std::string devices = concat(shares.devices(), " devices");
  const std::string micro_batches = concat(shares.micro_batches, " micro batches");
  if (shares.devices() == 1) return micro_batches;
  return shares.micro_batches == 1 ? devices : concat(micro_batches, " on each of ", devices);
}

void check_rows(const Batch& batch, const std::string& what, int64_t parts, const std::string& into,
                const std::string& asked_by) {
  for (size_t i = 0; i < batch.size(); ++i) {
    EPL_CHECK(batch[i].dim() > 0,
              concat("cannot cut tensor ", i, " of the ", what, ", a single number, into ", into),
              asked_by, "one number a row, or epl::Trainer::step(source)");
    EPL_CHECK(batch[i].size(0) == batch[0].size(0),
              concat("cannot cut a ", what, " whose tensors differ in rows: tensor 0 has ",
                     batch[0].size(0), ", tensor ", i, " has ", batch[i].size(0)),
              asked_by, "rows in dim 0 of every tensor, or epl::Trainer::step(source)");
    EPL_CHECK(batch[i].size(0) % parts == 0,
              concat("cannot cut a ", what, " of ", batch[i].size(0), " rows evenly into ", into),
              asked_by,
              concat("a batch size that ", parts, " divides, such as ",
                     (batch[i].size(0) / parts + 1) * parts));
  }
}

Batch part_of(const Batch& batch, int64_t part, int64_t parts) {
  if (parts == 1) return batch;
  Batch result;
  for (const auto& tensor : batch) {
    const int64_t rows = tensor.size(0) / parts;
    result.push_back(tensor.narrow(0, part * rows, rows));
  }
  return result;
}

void check_same_shapes(const Batch& first, const Batch& now, int number, const Config& config) {
  EPL_CHECK(now.size() == first.size(),
            concat("micro batch ", number, " has ", now.size(), " tensors, micro batch 0 has ",
                   first.size()),
            config.asked_by(kKey));
  for (size_t j = 0; j < now.size(); ++j) {
    EPL_CHECK(
        now[j].sizes() == first[j].sizes() && now[j].dtype() == first[j].dtype(),
        concat("tensor ", j, " of micro batch ", number, " is ", now[j].dtype(), now[j].sizes(),
               ", that of micro batch 0 is ", first[j].dtype(), first[j].sizes()),
        config.asked_by(kKey), "micro batches of one shape within a step");
  }
}

bool lie_side_by_side(const std::vector<at::Tensor>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].layout() != c10::kStrided || parts[i].requires_grad()) return false;
    if (i == 0) continue;
    const at::Tensor& before = parts[i - 1];
    const bool next =
        parts[i].is_alias_of(before) && parts[i].strides() == before.strides() &&
        parts[i].sizes().slice(1) == before.sizes().slice(1) &&
        parts[i].storage_offset() == before.storage_offset() + before.size(0) * before.stride(0);
    if (!next) return false;
  }
  return true;
}

at::Tensor joined_tensor(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts[0];
  if (parts.size() == 1 || first.dim() == 0) return first;
  const c10::AutoGradMode no_grad(false);
  if (!lie_side_by_side(parts)) return at::cat(parts).requires_grad_(first.requires_grad());
  std::vector<int64_t> sizes = first.sizes().vec();
  for (size_t i = 1; i < parts.size(); ++i) sizes[0] += parts[i].size(0);
  return first.as_strided(sizes, first.strides(), first.storage_offset());
}

}  // namespace

Batch sample_of(const Batch& batch, int64_t parts) {
  check_defined(batch);
  const bool even = std::all_of(batch.begin(), batch.end(), [&](const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) % parts == 0;
  });
  return even ? part_of(batch, 0, parts) : batch;
}

bool divides_evenly(const Batch& batch, const Shares& shares) {
  const int64_t parts = int64_t{shares.devices()} * shares.micro_batches;
  return parts == 1 || std::all_of(batch.begin(), batch.end(), [&](const at::Tensor& tensor) {
           return tensor.defined() && tensor.dim() > 0 && tensor.size(0) % parts == 0 &&
                  tensor.size(0) == batch[0].size(0);
         });
}

DeviceBatches cut_into_micro_batches(const Batch& batch, const Shares& shares,
                                     const Config& config) {
  check_defined(batch);
  const int64_t parts = int64_t{shares.devices()} * shares.micro_batches;
  if (parts > 1) {
    check_rows(batch, "batch", parts, describe_parts(shares), asked_by(shares, config));
  }
  DeviceBatches result(static_cast<size_t>(shares.devices()));
  int64_t part = 0;
  for (int replica = 0; replica < shares.replicas; ++replica) {
    for (int i = 0; i < shares.micro_batches; ++i) {
      for (int slice = 0; slice < shares.slices; ++slice) {
        result[static_cast<size_t>(replica * shares.slices + slice)].push_back(
            part_of(batch, part++, parts));
      }
    }
  }
  return result;
}

Batch repeat_rows(const Batch& batch, int times) {
  if (times == 1) return batch;  // as it lies in memory
  Batch repeated;
  for (const auto& tensor : batch) {
    const std::vector<at::Tensor> copies(static_cast<size_t>(times), tensor);
    repeated.push_back(tensor.dim() == 0 ? tensor : at::cat(copies));
  }
  return repeated;
}

Batch joined_rows(const std::vector<const Batch*>& slices) {
  Batch joined;
  for (size_t i = 0; i < slices[0]->size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const Batch* slice : slices) parts.push_back((*slice)[i]);
    joined.push_back(joined_tensor(parts));
  }
  return joined;
}

DeviceBatches draw_micro_batches(const BatchSource& source, const Shares& shares,
                                 const Config& config) {
  DeviceBatches result(static_cast<size_t>(shares.devices()));
  Batch first;
  for (int replica = 0; replica < shares.replicas; ++replica) {
    for (int i = 0; i < shares.micro_batches; ++i) {
      const Batch drawn = source();
      check_defined(drawn);
      const int number = replica * shares.micro_batches + i;
      if (number == 0) first = drawn;
      check_same_shapes(first, drawn, number, config);
      if (shares.slices > 1) {
        check_rows(drawn, "micro batch", shares.slices, concat(shares.slices, " devices"),
                   shares.asked_by);
      }
      for (int slice = 0; slice < shares.slices; ++slice) {
        result[static_cast<size_t>(replica * shares.slices + slice)].push_back(
            part_of(drawn, slice, shares.slices));
      }
    }
  }
  return result;
}

}  // namespace epl
