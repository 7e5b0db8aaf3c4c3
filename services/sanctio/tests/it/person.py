"""A person in a room of XMPP: says the lines of the standard input, and prints what is said, as NICK: TEXT."""

import asyncio
import sys

import slixmpp

host, port, room, nick = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]


class Person(slixmpp.ClientXMPP):
    def __init__(self):
        super().__init__(f"{nick}@localhost", "secret")
        self.register_plugin("xep_0045")
        self.add_event_handler("session_start", self.start)
        self.add_event_handler("groupchat_message", self.hear)

    async def start(self, _):
        self.send_presence()
        await self.plugin["xep_0045"].join_muc_wait(room, nick, maxstanzas=0)
        print("joined", flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self.say)

    def say(self):
        line = sys.stdin.readline()
        if not line:
            return self.disconnect()
        self.send_message(mto=room, mbody=line.rstrip("\n").replace("\\n", "\n"), mtype="groupchat")

    def hear(self, message):
        print(f"{message['mucnick']}: {message['body']}".replace("\n", "\\n"), flush=True)


person = Person()
person["feature_mechanisms"].unencrypted_plain = True
person.connect((host, port), disable_starttls=True)
person.process(forever=False)
