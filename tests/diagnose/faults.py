"""Executors and transforms with faults, in a module that fresh processes can import."""

import os
import signal
import time

import torch

from thunder.executors import OperatorExecutor

aten = torch.ops.aten


def _refuse(x):
    raise NotImplementedError(f"no relu for {x.dim()} dimensions")


def _crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)


def _sleep(x):
    time.sleep(60)


WRONG_RELU = OperatorExecutor("wrong_relu", {aten.relu: lambda x: x.clamp(min=0.01)})
WRONG_TANH = OperatorExecutor("wrong_tanh", {aten.tanh: lambda x: x.tanh() * 1.01})
WRONG_TANH_BACKWARD = OperatorExecutor(
    "wrong_tanh_backward", {aten.tanh_backward: lambda gradient, x: gradient * (1 - x)}
)
REFUSING_RELU = OperatorExecutor("refusing_relu", {aten.relu: _refuse})
CRASHING_RELU = OperatorExecutor("crashing_relu", {aten.relu: _crash})
ABORTING_RELU_BACKWARD = OperatorExecutor(
    "aborting_relu_backward", {aten.threshold_backward: lambda *args: os.abort()}
)
HEALTHY_RELU = OperatorExecutor("healthy_relu", {aten.relu: lambda x: x.clamp(min=0)})
SLOW_RELU = OperatorExecutor("slow_relu", {aten.relu: _sleep})


def tanh_becomes_sin(graph_module):
    """A wrong transform."""
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.tanh.default:
            node.target = torch.ops.aten.sin.default
    graph_module.recompile()
    return graph_module


def refuse_tanh(graph_module):
    """A transform that fails."""
    for node in graph_module.graph.nodes:
        if node.target is torch.ops.aten.tanh.default:
            raise NotImplementedError("tanh is not for me")
    return graph_module
