"""Putting the new activations in: by swapping modules where that says it all, else by a rewritten graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import zip_longest

from torch import fx, nn

from boolit.nn.activations import Activation
from boolit.nn.conversion.constraints import WidthConstraints
from boolit.nn.conversion.operations import argument
from boolit.nn.conversion.sites import TRANSFORMER_LAYERS, ActivationChoice, Site, child, operation_name, owner, trace, unique
from boolit.nn.conversion.widths import Scale

_DROPOUTS: dict[str, type[nn.Module]] = {
    "dropout": nn.Dropout,
    "dropout1d": nn.Dropout1d,
    "dropout2d": nn.Dropout2d,
    "dropout3d": nn.Dropout3d,
    "alpha_dropout": nn.AlphaDropout,
    "feature_alpha_dropout": nn.FeatureAlphaDropout,
}


def needs_graph(sites: Collection[Site], new: Mapping[Site, Activation], constraints: WidthConstraints, scale: Scale) -> bool:
    """Whether the forward itself must change: for calls of functions, or a module that acts differently in two calls."""
    calls: dict[str, set[int | None]] = defaultdict(set)
    for site in sites:
        if site.module is not None:
            calls[site.module].add(new[site].dim if site in new else None)
    functions = any(site.node is not None and site.module is None for site in new)
    sizes_in_code = any(scale.size(literal.use) != literal.use.size for literal in constraints.literals)
    return functions or sizes_in_code or any(len(dims) > 1 for dims in calls.values())


def swap_modules(model: nn.Module, new: Mapping[Site, Activation]) -> None:
    """Puts the new activations where the old ones are, under every name these have."""
    paths = [(name, id(module)) for name, module in model.named_modules(remove_duplicate=False)]
    for site, activation in new.items():
        if site.module is None:
            _put_in_transformer(model, site, activation)
        elif site.name == site.module:
            old = id(model.get_submodule(site.module))
            for name in (name for name, module in paths if module == old):
                put(model, name, activation)


def rewrite(model: nn.Module, graph: fx.Graph, sites: Collection[Site], new: Mapping[Site, Activation]) -> fx.GraphModule:
    """The model as a graph in which every activation is a module of its own."""
    modules = {**{site: model.get_submodule(site.module) for site in sites if site.module is not None}, **new}
    for site, module in modules.items():
        if site.node is None:
            _put_in_transformer(model, site, module)
        else:
            put(model, site.name, module)
            _call_module(site.node, site.name)
    graph.lint()
    return fx.GraphModule(model, graph, class_name=type(model).__name__)


def rewrite_literals(constraints: WidthConstraints, scale: Scale) -> None:
    """Sizes written out in reshapes follow the widths."""
    for literal in constraints.literals:
        literal.node.args = (literal.node.args[0], (literal.leading, scale.size(literal.use)))


def put(model: nn.Module, path: str, module: nn.Module) -> None:
    """Sets a module at a path."""
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _call_module(node: fx.Node, path: str) -> None:
    """Makes a node the call of a module on the node's first operand."""
    operand = node.all_input_nodes[0]
    with node.graph.inserting_before(node):
        call = node.graph.call_module(path, (operand,))
    node.replace_all_uses_with(call)
    node.graph.erase_node(node)


def _put_in_transformer(model: nn.Module, site: Site, activation: nn.Module) -> None:
    """Sets the activation of torch's own layer, and turns off the fast paths that would not call it."""
    layer = model.get_submodule(site.name.rpartition(".")[0])
    assert isinstance(layer, TRANSFORMER_LAYERS)
    layer.activation = activation
    if isinstance(layer, nn.TransformerEncoderLayer):
        layer.activation_relu_or_gelu = 0
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and layer in encoder.layers:
            encoder.use_nested_tensor = False


def free_training(model: nn.Module, graph: fx.Graph, choice: ActivationChoice) -> None:
    """Dropout calls become modules: a graph would remember for ever whether the model was in training when traced."""
    taken = {name for name, _ in model.named_modules(remove_duplicate=False)}
    pairs = zip_longest(graph.nodes, _traced_in_other_mode(model, choice).nodes)
    for node, other in [(node, other) for node, other in pairs if _text(node) != _text(other)]:
        kind = _DROPOUTS.get(operation_name(node)) if node and node.op == "call_function" else None
        if kind is None or other is None or node.target is not other.target:
            raise ValueError(
                f"cannot rewrite {type(model).__name__}: in training its forward takes another way at {node or other}; "
                "make its activations modules instead of function calls"
            )
        path = unique(child(owner(node), operation_name(node)), taken)
        put(model, path, kind(argument(node, 1, "p", 0.5)).train(model.get_submodule(owner(node)).training))
        _call_module(node, path)


def _traced_in_other_mode(model: nn.Module, choice: ActivationChoice) -> fx.Graph:
    modules = list(model.modules())
    for module in modules:
        module.training = not module.training
    try:
        return trace(model, choice)
    finally:
        for module in modules:
            module.training = not module.training


def _text(node: fx.Node | None) -> str:
    return f"{node.op} {node.target} {node.args} {node.kwargs}" if node else ""
