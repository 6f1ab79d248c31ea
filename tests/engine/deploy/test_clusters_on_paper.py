"""Files for clusters that cannot be run here: manifests by Kubernetes' own schemas, settings by Spark's own code."""

import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pyspark
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "conf" / "deploy"
RELEASE = "1.34"
MANIFESTS = sorted([*(path.name for path in DEPLOY.glob("*.yaml")), "monitoring/monitoring.yaml"])
PREFIXES = ("spark.executorEnv.",)  # of settings whose ends are free


def documents(name: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))]


def of_kind(name: str, kind: str) -> dict[str, Any]:
    (found,) = (each for each in documents(name) if each["kind"] == kind)
    return found


def settings(name: str, *, commented: bool = False) -> dict[str, str]:
    """Of a properties file; with those that are left to the user."""
    lines = (DEPLOY / name).read_text(encoding="utf-8").splitlines()
    texts = [line.removeprefix("# ") if commented and line.startswith("# spark.") else line for line in lines]
    return dict(line.split(None, 1) for line in texts if line.startswith("spark."))


@cache
def words_of_spark() -> frozenset[str]:
    """Texts in the compiled classes of Spark that look like names of settings."""
    found: set[str] = set()
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        if re.match(r"spark-(core|yarn|kubernetes|network-common)_", jar.name):
            with zipfile.ZipFile(jar) as archive:
                for name in archive.namelist():
                    if name.endswith(".class"):
                        found |= set(re.findall(rb"spark\.[A-Za-z][\w.]+", archive.read(name)))  # type: ignore[arg-type]
    return frozenset(word.decode() for word in found)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_what_kubernetes_takes(name: str) -> None:
    """Strictly: no member that its schema does not know."""
    for document in documents(name):
        assert kubernetes_validate.validate(document, RELEASE, strict=True) == RELEASE


def test_a_wrong_member_is_found() -> None:
    pod = documents("executor-pod.yaml")[0]
    pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claim"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError, match="claim"):
        kubernetes_validate.validate(pod, RELEASE, strict=True)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["kubernetes.conf", "yarn.conf"])
def test_settings_are_those_of_spark(name: str) -> None:
    given = settings(name, commented=True)
    assert len(given) > 8
    assert [key for key in given if key not in words_of_spark() and not key.startswith(PREFIXES)] == []


@pytest.mark.sweep
def test_a_wrong_setting_is_found() -> None:
    assert "spark.kubernetes.executor.podTemplate" not in words_of_spark()


def test_the_parts_of_a_kubernetes_cluster_fit_together() -> None:
    """Names, ports, paths and rights that one file has and another one uses."""
    conf = settings("kubernetes.conf")
    driver, service = of_kind("kubernetes-cluster.yaml", "StatefulSet"), of_kind("kubernetes-cluster.yaml", "Service")
    pod, executor = driver["spec"]["template"], of_kind("executor-pod.yaml", "Pod")
    (container,), (other,) = pod["spec"]["containers"], executor["spec"]["containers"]
    account = of_kind("kubernetes-cluster.yaml", "ServiceAccount")["metadata"]["name"]
    claim = of_kind("kubernetes-cluster.yaml", "PersistentVolumeClaim")

    assert conf["spark.driver.host"] == service["metadata"]["name"] == driver["spec"]["serviceName"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    ports = {int(conf["spark.driver.port"]), int(conf["spark.driver.blockManager.port"])}
    assert ports == {each["port"] for each in service["spec"]["ports"]}
    assert ports < {each["containerPort"] for each in container["ports"]}
    assert conf["spark.kubernetes.driver.pod.name"] == f"{driver['metadata']['name']}-0"

    assert conf["spark.kubernetes.container.image"] == container["image"]
    assert conf["spark.kubernetes.executor.podTemplateContainerName"] == other["name"]
    assert Path(conf["spark.kubernetes.executor.podTemplateFile"]).name == "executor-pod.yaml"
    assert pod["spec"]["serviceAccountName"] == executor["spec"]["serviceAccountName"] == account
    assert of_kind("kubernetes-cluster.yaml", "RoleBinding")["subjects"][0]["name"] == account
    assert pod["spec"]["securityContext"] == executor["spec"]["securityContext"]

    # what executors write, the driver commits: both have the same volume under the same path
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for spec, each in ((pod["spec"], container), (executor["spec"], other)):
        (volume,) = (volume for volume in spec["volumes"] if "persistentVolumeClaim" in volume)
        (mount,) = (mount for mount in each["volumeMounts"] if mount["name"] == volume["name"])
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert mount["mountPath"] == "/data"
    assert all(each["value"].startswith("/data/") for each in container["env"])


def test_the_image_has_the_release_of_spark_that_is_tested() -> None:
    """And pins the libraries that the tests run with: drivers and executors that differ are refused."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    (pin,) = re.findall(r"^pyspark==(\S+)$", (ROOT / "conf/constraints.txt").read_text(), re.MULTILINE)
    assert f"FROM apache/spark:{pin}-" in text
    assert "-c /tmp/fluvial/conf/constraints.txt" in text
    (image,) = re.findall(r"-t (\S+) \.$", text, re.MULTILINE)
    assert image == settings("kubernetes.conf")["spark.kubernetes.container.image"]
