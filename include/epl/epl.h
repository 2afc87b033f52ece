// EPL, Easy Parallel Library: start here. One header for a whole program:
//
//   epl::init(epl::Config{{"pipeline.num_micro_batch", 4}});       // config.h, env.h
//   { epl::With stage(epl::replicate(1, "stage_0")); ... }          // strategy.h, in forward
//   epl::DistributedSampler sampler(dataset_size);                  // data.h
//   epl::Trainer trainer(net, optimizer, step_function);            // trainer.h
//   trainer.step({data, target});
//   epl::all_reduce(counted, "sum");                                // collectives.h
//
// It brings all of <torch/torch.h>; the single headers bring only what they name.
#pragma once

#include <epl/cluster.h>
#include <epl/collection.h>
#include <epl/collectives.h>
#include <epl/config.h>
#include <epl/data.h>
#include <epl/env.h>
#include <epl/error.h>
#include <epl/io.h>
#include <epl/step.h>
#include <epl/strategy.h>
#include <epl/trainer.h>
#include <torch/torch.h>
