"""Kubeconfig files: which file counts, what a user's entry becomes, and what can't be used."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from halcyon_cli.kube.kubeconfig import Access, KubeconfigError, UnknownContextError, read
from halcyon_cli.kube.transport import Transport


def config(
    folder: Path,
    name: str = "config",
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    context: str = "x",
    current: str = "x",
) -> Path:
    file = folder / name
    document = {
        "current-context": current,
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", "namespace": name}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{name}:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    file.write_text(json.dumps(document))
    return file


def of_user(folder: Path, **user: Any) -> Access:
    return read([config(folder, user=user)])


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_first_file_with_a_name_wins_and_absent_files_are_skipped(tmp_path: Path) -> None:
    files = [tmp_path / "absent", config(tmp_path, "one"), config(tmp_path, "two", context="y", current="y")]

    first = read(files)
    assert (first.server, first.namespace) == ("https://one:6443", "one")
    assert (read(files, "y").server, read(files, "y").namespace) == ("https://one:6443", "two")


def test_paths_are_relative_to_the_file_that_has_them(tmp_path: Path) -> None:
    user = {"client-certificate": "me.crt", "client-key": "/keys/me.key", "tokenFile": "token"}
    access = read([config(tmp_path, user=user, cluster={"certificate-authority": "ca.crt"})])

    assert (access.ca, access.certificate) == (tmp_path / "ca.crt", tmp_path / "me.crt")
    assert (access.key, access.token) == (Path("/keys/me.key"), tmp_path / "token")


def test_data_win_over_files_and_a_token_file_over_a_token(tmp_path: Path) -> None:
    access = of_user(
        tmp_path,
        **{
            "client-certificate-data": encoded("CERTIFICATE"),
            "client-certificate": "me.crt",
            "client-key-data": encoded("KEY"),
            "token": "old",
            "tokenFile": "token",
        },
    )

    assert (access.certificate, access.key, access.token) == (b"CERTIFICATE", b"KEY", tmp_path / "token")


def test_the_servers_name_and_the_proxy_are_those_of_the_cluster(tmp_path: Path) -> None:
    cluster = {"insecure-skip-tls-verify": True, "tls-server-name": "api", "proxy-url": "http://p:3128"}
    access = read([config(tmp_path, cluster=cluster)])

    assert (access.verified, access.server_name, access.proxy) == (False, "api", "http://p:3128")


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"as": "ada", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["s"]}}

    assert of_user(tmp_path, **user).impersonated == (
        ("Impersonate-User", "ada"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes", "s"),
    )


def test_a_plugin_with_a_slash_is_relative_to_the_file(tmp_path: Path) -> None:
    exec_fields = {"command": "bin/login", "args": ["-q"], "env": [{"name": "A", "value": "1"}]}
    plugin = of_user(tmp_path, exec=exec_fields).plugin

    assert plugin is not None
    assert (plugin.command, plugin.arguments, plugin.environment) == (f"{tmp_path}/bin/login", ("-q",), (("A", "1"),))
    bare = of_user(tmp_path, exec={"command": "login"}).plugin
    assert bare is not None
    assert (bare.command, bare.cluster) == ("login", None)


def test_a_plugin_that_asks_for_it_gets_a_description_of_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("CA")
    settings = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    cluster = {"certificate-authority": "ca.crt", "extensions": [{"name": "other", "extension": 1}, settings]}
    user = {"exec": {"command": "login", "provideClusterInfo": True}}
    plugin = read([config(tmp_path, user=user, cluster=cluster)]).plugin

    assert plugin is not None
    assert plugin.cluster == {
        "server": "https://config:6443/",
        "certificate-authority-data": encoded("CA"),
        "config": {"audience": "a"},
    }


def test_a_stored_id_token_is_sent_and_other_providers_are_named(tmp_path: Path) -> None:
    provider = {"name": "oidc", "config": {"id-token": "abc"}}

    assert of_user(tmp_path, **{"auth-provider": provider}).token == "abc"
    with pytest.raises(KubeconfigError, match="auth-provider is gcp, which isn't supported; use exec"):
        of_user(tmp_path, **{"auth-provider": {"name": "gcp"}})
    with pytest.raises(KubeconfigError, match="config must be a mapping"):
        of_user(tmp_path, **{"auth-provider": {"name": "oidc", "config": "abc"}})


def test_an_unknown_context_comes_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownContextError, match="no context z") as caught:
        read([config(tmp_path)], "z")

    assert caught.value.names == ["x"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"current-context": ""}, "no current-context; name one with --context"),
        ({"clusters": []}, "context x names the cluster c, which isn't there"),
        ({"users": [{"name": "other"}]}, "context x names the user u, which isn't there"),
        ({"clusters": [{"name": "c", "cluster": {"server": "api:6443"}}]}, "server is 'api:6443'; it must be a URL"),
        ({"contexts": {"name": "x"}}, "contexts must be a list of objects with a name"),
        ({"users": [{"name": "u", "user": {"exec": {"args": []}}}]}, "exec has no command"),
        ({"users": [{"name": "u", "user": {"client-key-data": "a"}}]}, "client-key-data isn't base64"),
        ({"users": [{"name": "u", "user": ["token"]}]}, "user must be a mapping"),
        ({"users": [{"name": "u", "user": {"token": 12345}}]}, "user.token must be a string; quote it$"),
        ({"users": [{"name": "u", "user": {"as-groups": "admins"}}]}, "user.as-groups must be a list"),
        ({"users": [{"name": "u", "user": {"as-user-extra": {"a": "b"}}}]}, "as-user-extra.a must be a list"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "a", "args": "b"}}}]}, "exec.args must be a list"),
        ({"users": [{"name": "u", "user": {"exec": {"command": "a", "env": ["b"]}}}]}, "exec.env must be a list of"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://[::1"}}]}, "it must be a URL"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://api:99999"}}]}, "it must be a URL"),
        ({"contexts": [{"name": "x", "context": {"cluster": "c", "namespace": 5}}]}, "context.namespace must be a str"),
    ],
)
def test_a_file_that_cannot_be_used_is_explained(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    file = config(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(KubeconfigError, match=reason):
        read([file])


def test_a_text_in_place_of_false_does_not_skip_verification(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"clusters\[\]\.cluster\.insecure-skip-tls-verify must be true or false"):
        read([config(tmp_path, cluster={"insecure-skip-tls-verify": "false"})])


def test_text_that_yaml_does_not_read_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("a: " + 3000 * "[")
    with pytest.raises(KubeconfigError, match="nested too deeply"):
        read([file])
    file.write_text("token: !!int x")
    with pytest.raises(KubeconfigError, match="could not convert string to float"):
        read([file])


def test_an_environment_variable_of_a_plugin_may_have_no_value(tmp_path: Path) -> None:
    plugin = of_user(tmp_path, exec={"command": "login", "env": [{"name": "A"}]}).plugin
    assert plugin is not None
    assert plugin.environment == (("A", ""),)


def test_keys_of_impersonation_are_escaped_as_names_of_headers(tmp_path: Path) -> None:
    user = {"as": "Łukasz", "as-user-extra": {"example.org/team": ["ü"]}}
    access = of_user(tmp_path, **user)
    assert access.impersonated == (("Impersonate-User", "Łukasz"), ("Impersonate-Extra-example.org%2Fteam", "ü"))
    sent = Transport(access).headers()
    assert {name: value.encode("latin-1").decode() for name, value in sent.items()} == dict(access.impersonated)


def test_an_empty_kubeconfig_among_others_has_no_entries(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "comment").write_text("# nothing yet\n")
    access = read([tmp_path / "empty", config(tmp_path, "one"), tmp_path / "comment"])
    assert access.server == "https://one:6443"


def test_a_context_that_is_named_needs_no_current_one(tmp_path: Path) -> None:
    assert read([config(tmp_path, "one", current="")], "x").server == "https://one:6443"


@pytest.mark.parametrize("user", [None, {}])
def test_a_user_of_a_kubeconfig_may_have_no_credentials(tmp_path: Path, user: dict[str, Any] | None) -> None:
    file = config(tmp_path)
    document = json.loads(file.read_text())
    document["users"] = [{"name": "u"} if user is None else {"name": "u", "user": user}]
    file.write_text(json.dumps(document))
    access = read([file])
    assert (access.token, access.certificate, access.basic, access.plugin) == (None, None, None, None)


def test_a_user_name_that_is_null_leaves_the_certificate(tmp_path: Path) -> None:
    access = of_user(tmp_path, username=None, password=None, **{"client-certificate": "me.crt", "client-key": "me.key"})
    assert (access.basic, access.certificate) == (None, tmp_path / "me.crt")
