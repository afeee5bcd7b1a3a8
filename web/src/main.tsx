/** Starts the app. */
import { render } from "preact";

import { App } from "./app";
import { location, matchPath, startRouter } from "./router";
import { startApprovals } from "./state/approvals";
import { startAuth } from "./state/auth";
import { openChat, startChats } from "./state/chat";
import { startLive } from "./state/live";
import { startOutbox } from "./state/outbox";
import { startSessions } from "./state/sessions";
import { startTheme } from "./state/theme";
import { startPalette } from "./ui/palette";
import "./styles/index.css";

startTheme();
startRouter();
startPalette();
startSessions();
startApprovals();
startChats();
startOutbox();
startLive();
// The session of the address loads while the page finds out who is signed in.
if (!window.location.hash.includes("code=")) openChat(matchPath("/sessions/:sessionId", location.value.path)?.["sessionId"]);
void startAuth();
const root = document.getElementById("app");
if (root !== null) render(<App />, root);
