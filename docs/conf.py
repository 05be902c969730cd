"""Settings of the site: Sphinx with MyST. `make docs` builds it into site/ and needs no network."""

from __future__ import annotations

import os
import re
import tempfile
import zlib
from pathlib import Path

from sphinx.application import Sphinx

import boolit

HERE = Path(__file__).parent

project = "boolit"
author = "The boolit authors"
project_copyright = "The boolit authors; MIT license"
version = release = boolit.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples", "evidence", "auto_examples/**.ipynb", "**/.ipynb_checkpoints"]
nitpicky = False
default_role = "py:obj"  # single backticks in a docstring link to what they name, where that is in the reference

# Pages
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

# Notebooks and executable pages run at every build; an error in one of them fails the build.
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_render_markdown_format = "myst"  # the default, commonmark, has no tables
nb_ipywidgets_js: dict[str, dict[str, str]] = {}  # would come from a content network

# The gallery: docs/examples/plot_*.py run at every build, and their pages are written to docs/auto_examples.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("boolit",),
    "reference_url": {"boolit": None},
    "backreferences_dir": None,
    "abort_on_example_error": True,
    "capture_repr": (),  # show what an example prints, but not the value of its last line
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
}

# The reference
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("JSON", "npt.ArrayLike")}  # show these names instead of their long definitions
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
napoleon_google_docstring = True
napoleon_numpy_docstring = False

# Appearance. All fonts, scripts and pictures are part of the site.
html_theme = "pydata_sphinx_theme"
html_title = "boolit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/gate.svg"
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"**": ["sidebar-pages"], "index": []}
templates_path = ["_templates"]
html_context = {"default_mode": "auto"}  # light or dark, like the reader's system
html_theme_options = {
    "logo": {"text": "boolit", "image_light": "_static/gate.svg", "image_dark": "_static/gate.svg", "alt_text": "boolit, home"},
    "navbar_center": ["header-links"],
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-field"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "search_bar_text": "Search",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"


def write_inventory(path: Path, project: str, lines: list[str]) -> None:
    """Write a Sphinx inventory: a header, and compressed lines of name, kind, priority, address and title."""
    entries = "".join(f"{name} py:{kind} 1 {address} -\n" for name, kind, address in (line.split() for line in lines))
    header = (
        "Sphinx inventory version 2",
        f"Project: {project}",
        "Version: ",
        "The remainder of this file is compressed using zlib.",
    )
    path.write_bytes("".join(f"# {line}\n" for line in header).encode() + zlib.compress(entries.encode()))


def inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories that inventories.txt lists, and return their addresses and paths by project.

    Otherwise Sphinx would download megabytes of inventories for a few links, and a build without a network would fail.
    """
    mapping = {}
    for block in (HERE / "inventories.txt").read_text(encoding="utf-8").split("\n\n"):
        heading, *lines = [line for line in block.splitlines() if not line.startswith("#")] or [""]
        if heading:
            project, address = heading.split()
            write_inventory(folder / project, project, lines)
            mapping[project] = (address, str(folder / project))
    return mapping


_folder = tempfile.TemporaryDirectory()  # deleted when the build ends
intersphinx_mapping = inventories(Path(_folder.name))

# Notebooks run without the user's IPython settings, and without the kernel's warning about local TCP connections.
_profile = Path(_folder.name) / "ipython" / "profile_default"
_profile.mkdir(parents=True)
(_profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 'ERROR'\n")
os.environ["IPYTHONDIR"] = str(_profile.parent)


def mark_shapes(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Turn a paragraph of a docstring that begins with "Shape: " into a field like the parameters."""
    text = re.sub(r"(?m)^Shape: .+(?:\n.+)*", lambda m: ":" + m[0].replace("\n", "\n    "), "\n".join(lines))
    lines[:] = text.split("\n")


def shorten_types(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, *texts: str | None
) -> tuple[str | None, ...]:
    """Show the name of a type alias also within a union, and arrays without their type parameters."""
    short = [text and re.sub(r"TypeAliasForwardRef\('([\w.]+)'\)", r"\1", text).replace("npt.", "") for text in texts]
    return tuple(text and re.sub(r"(numpy\.ndarray)\[tuple\[.*?\], .*?\[.*?\]\]", r"\1", text) for text in short)


def unlist_signatures(_app: Sphinx, _page: str, _template: str, context: dict[str, object], _doctree: object) -> None:
    """Replace Sphinx's definition lists of parameters, which have no terms and confuse screen readers."""
    listed = re.compile(r"<dl>\n((?:<dd><em class=\"sig-param\">.*</dd>\n)+)</dl>")
    if isinstance(context.get("body"), str):
        context["body"] = listed.sub(
            lambda m: '<span class="sig-lines">' + m[1].replace("<dd>", "<span>").replace("</dd>", "</span>") + "</span>",
            str(context["body"]),
        )


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", unlist_signatures)
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("autodoc-process-docstring", mark_shapes, priority=400)  # before napoleon, which has 500
