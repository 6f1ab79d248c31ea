"""A Java virtual machine to drive from Python by reflection: nothing is compiled, nothing of ours runs in it.

`Jvm` starts it with py4j's gateway and ends it. py4j alone cannot call default methods of interfaces nor methods of
hidden classes, so `Jvm.call` finds the method in a public interface; and it is slow per call, so what has been looked
up is kept, and loops over rows stay in Java: `Jvm.consumer` turns a chain of method handles into the consumer that a
Java loop feeds.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from tests.peers import PeerError
from tests.support.class_archive import UNVERIFIED

ERROR_TAIL_LINES = 30
# it runs for a minute or two, over and over: the best compiler costs more than it gives, and so does a proof that the
# classes of known jars are well-formed: a fifth of a start and a first job. Standard output is the gateway's alone.
_QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+DisplayVMOutputToStderr", *UNVERIFIED)
_OBJECT: Final = "java.lang.Object"


class Jvm:
    """One virtual machine. Not thread-safe."""

    def __init__(
        self, jars: Sequence[Path], *, gateway_jar: Path, max_heap: str = "512m", options: Sequence[str] = ()
    ) -> None:
        """Start it with `jars` as its class path, and with more of Java's options."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the machine that writes it)
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
        if java is None:
            raise PeerError("java is missing: set JAVA_HOME or PATH")
        port, token, process = launch_gateway(
            jarpath=str(gateway_jar),
            classpath=os.pathsep.join(map(str, jars)),
            javaopts=[f"-Xmx{max_heap}", "-Duser.timezone=UTC", "-Dslf4j.internal.verbosity=ERROR", *_QUICK, *options],
            java_path=java,
            die_on_exit=True,  # it ends when its standard input does, so also when we are killed
            enable_auth=True,
            return_proc=True,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=self._log,
        )
        self._process: subprocess.Popen[bytes] = process
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )
        self.root = self._gateway.jvm
        self._kept: dict[Hashable, Any] = {}
        self.paimon = self.root.org.apache.paimon
        self._lookup = self.root.java.lang.invoke.MethodHandles.publicLookup()
        self.handles = self.root.java.lang.invoke.MethodHandles

    def close(self) -> None:
        """End the machine and wait for it."""
        self._gateway.shutdown()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def kill(self) -> None:
        """End the machine as a crash does: nothing in it can know."""
        self._process.kill()
        self._process.wait()
        self._gateway.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()

    def kept(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made for this key before: Java objects that do not change."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def java_class(self, name: str) -> Any:
        """The Class of a primitive, a full name ("java.util.List") or a short one of Paimon ("data.InternalRow")."""
        return self.kept(("class", name), lambda: self._java_class(name))

    def _java_class(self, name: str) -> Any:
        if name in _BOXES:
            return getattr(self.root.java.lang, _BOXES[name]).TYPE
        full = (
            name
            if name.startswith(("java.", "[L", "org.apache.flink.", "org.apache.hadoop."))
            else f"org.apache.paimon.{name}"
        )
        return self.root.java.lang.Class.forName(full)

    def java_array(self, element: str, values: Sequence[Any]) -> Any:
        """A Java array of a class (full name) or of a primitive."""
        made = self._gateway.new_array(self.kept(("name", element), lambda: self._named(element)), len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def _named(self, name: str) -> Any:
        found: Any = self.root
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def java_list(self, values: Sequence[Any]) -> Any:
        """A `java.util.ArrayList`."""
        made = self.kept("list", lambda: self.root.java.util.ArrayList)()
        for value in values:
            made.add(value)
        return made

    def java_map(self, values: Mapping[str, str]) -> Any:
        """A `java.util.HashMap`."""
        made = self.root.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def call(self, target: Any, interface: str, method: str, *arguments: Any) -> Any:
        """Call a method that a public interface or class declares, whatever hidden class `target` has."""
        key = (interface, method, len(arguments))
        candidates = self.kept(key, lambda: self._candidates(*key))
        for candidate, types in candidates:
            if len(candidates) == 1 or all(map(self._fits, types, arguments)):
                return candidate.invoke(target, self._arguments(arguments))
        raise PeerError(f"no such method: {interface}.{method} with {len(arguments)} arguments")

    def instance_handle(self, owner: str, method: str, returns: str, parameters: Sequence[str] = ()) -> Any:
        """Method handle of an instance method: takes the instance first."""
        key = ("instance", owner, method, returns, *parameters)
        return self.kept(key, lambda: self._handle("findVirtual", owner, method, self.signature(returns, parameters)))

    def static_handle(self, owner: str, method: str, returns: str, parameters: Sequence[str] = ()) -> Any:
        """Method handle of a static method."""
        key = ("static", owner, method, returns, *parameters)
        return self.kept(key, lambda: self._handle("findStatic", owner, method, self.signature(returns, parameters)))

    def constructor_handle(self, owner: str, parameters: Sequence[str]) -> Any:
        """Method handle of a constructor."""
        key = ("constructor", owner, *parameters)
        return self.kept(key, lambda: self._handle("findConstructor", owner, self.signature("void", parameters)))

    def _handle(self, find: str, owner: str, *what: Any) -> Any:
        return getattr(self._lookup, find)(self.java_class(owner), *what)

    def retyped(self, handle: Any, returns: str, parameters: Sequence[str]) -> Any:
        """The handle with other static types (casts, boxing)."""
        return handle.asType(self.signature(returns, parameters))

    def first_bound(self, handle: Any, value: Any) -> Any:
        """The handle with its first argument given, which may be a primitive."""
        return self.handles.insertArguments(handle, 0, self.java_array(_OBJECT, [value]))

    def consumer(self, handle: Any) -> Any:
        """A `java.util.function.Consumer` that feeds the handle."""
        return self._functional("java.util.function.Consumer", handle)

    def callable(self, handle: Any) -> Any:
        """A `java.util.concurrent.Callable` that calls the handle, whose arguments are all bound."""
        return self._functional("java.util.concurrent.Callable", handle)

    def unary_operator(self, handle: Any) -> Any:
        """A `java.util.function.UnaryOperator` that applies the handle."""
        return self._functional("java.util.function.UnaryOperator", handle)

    def _functional(self, interface: str, handle: Any) -> Any:
        proxies = self.kept("proxies", lambda: self.root.java.lang.invoke.MethodHandleProxies)
        return proxies.asInterfaceInstance(self.java_class(interface), handle)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what Java throws inside into a `PeerError`: the causes, outermost first, as one message.

        A Spark session of this process has py4j ask its own machine about the exceptions of all machines: not here.
        """
        sparks = java_gateway.get_return_value
        java_gateway.get_return_value = protocol.get_return_value
        try:
            yield
        except Py4JError as raised:
            raise self._error(raised) from None  # its own text is a hundred lines of reflection
        finally:
            java_gateway.get_return_value = sparks

    def _error(self, raised: Py4JError) -> PeerError:
        if not isinstance(raised, Py4JJavaError):
            return PeerError(f"java peer: {raised}; it said: {self._said()}")
        texts, cause = [], raised.java_exception
        while cause is not None:
            if not cause.getClass().getName().endswith("InvocationTargetException"):
                texts.append(str(cause.toString()))
            cause = cause.getCause()
        return PeerError("java peer: " + " <- ".join(texts))

    def _said(self) -> str:
        self._log.seek(0)
        return "\n".join(self._log.read().decode("utf-8", "replace").splitlines()[-ERROR_TAIL_LINES:])

    def signature(self, returns: str, parameters: Sequence[str]) -> Any:
        return self.kept(("signature", returns, *parameters), lambda: self._signature(returns, parameters))

    def _signature(self, returns: str, parameters: Sequence[str]) -> Any:
        types = self.java_array("java.lang.Class", [self.java_class(name) for name in parameters])
        return self.root.java.lang.invoke.MethodType.methodType(self.java_class(returns), types)

    def _candidates(self, interface: str, method: str, count: int) -> list[tuple[Any, list[Any]]]:
        """The methods, each with the classes of its parameters."""
        methods = self.kept(("methods", interface), lambda: self._methods(interface))
        found = [one for one in methods.get(method, ()) if one.getParameterCount() == count]
        return [(one, list(one.getParameterTypes())) for one in found]

    def _methods(self, interface: str) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for method in self.java_class(interface).getMethods():
            found.setdefault(method.getName(), []).append(method)
        return found

    def _arguments(self, values: Sequence[Any]) -> Any:
        return self.java_array(_OBJECT, values) if values else self.kept("none", lambda: self.java_array(_OBJECT, ()))

    def _fits(self, wanted: Any, value: Any) -> bool:
        """Whether a parameter takes a value; of several methods of a name Java gives one first today, another later."""
        name = str(wanted.getName())
        if value is None:
            return not wanted.isPrimitive()
        for kind, takers in _TAKERS.items():
            if isinstance(value, kind):
                return name in takers
        return bool(wanted.isInstance(value))


_ANY = ("java.lang.Object",)
_TAKERS = {  # bool before int, which it is too; Java itself converts between numbers, or refuses
    bool: ("boolean", "java.lang.Boolean", *_ANY),
    int: ("byte", "short", "int", "long", "java.lang.Integer", "java.lang.Long", *_ANY),
    float: ("float", "double", "java.lang.Float", "java.lang.Double", *_ANY),
    str: ("java.lang.String", "java.lang.CharSequence", *_ANY),
}
_BOXES = {
    "void": "Void",
    "boolean": "Boolean",
    "byte": "Byte",
    "int": "Integer",
    "long": "Long",
}
